#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pedl_core::fuzzing::manifest(data));
