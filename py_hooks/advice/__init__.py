"""The advice that runs at an interception. It knows no version, and no framework unless it is passed one."""
