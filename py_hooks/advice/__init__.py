"""What is done at an interception. Knows no version, and no framework unless it is handed one."""
