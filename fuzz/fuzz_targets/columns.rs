//! JSON paths of printer columns and subresources, on arbitrary objects.
#![no_main]

use libfuzzer_sys::fuzz_target;
use objects::jsonpath::Path;

fuzz_target!(|input: (&str, &[u8])| {
    let (Ok(path), Ok(object)) = (Path::parse(input.0), objects::json::decode(input.1)) else {
        return;
    };
    let _ = path.find(&object.value);
    let _ = path.set(&mut object.value.clone(), 1.into());
});
