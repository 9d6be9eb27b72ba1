//! The reference page of the scenario file, made from the declarations of its keys.
pub fn reference() -> String {
    String::new()
}
