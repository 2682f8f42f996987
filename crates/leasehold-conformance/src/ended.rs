/// How a case ended that found no fault.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the outcomes of the test programme")]
pub enum Ended {
    /// It ran, and the store behaved correctly.
    Passed,
    /// The store reports that it cannot do this, and refused it in the test; or it does not report this.
    NotApplicable(String),
    /// It cannot run on this subject by its nature; the text states why.
    CannotHere(String),
    /// It did not run although it should have: something is missing.
    Ignored(String),
}
