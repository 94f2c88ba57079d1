#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pedl_run::fuzzing::ignore_file(data));
