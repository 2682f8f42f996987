use crate::{Effect, Error, ErrorKind, Result};

/// The outcomes of many requests that were sent together: a failure is the outcome of its own request, made by `failed`,
/// unless all failed. For stores.
///
/// # Errors
/// The [`worst`] failure if all failed.
pub fn each_or_worst<T>(
    outcomes: impl IntoIterator<Item = Result<T>>,
    failed: impl Fn(Error) -> T,
) -> Result<Vec<T>> {
    let outcomes: Vec<_> = outcomes.into_iter().collect();
    if outcomes.iter().any(Result::is_ok) {
        return Ok(outcomes.into_iter().map(|one| one.unwrap_or_else(&failed)).collect());
    }
    worst(outcomes.into_iter().filter_map(Result::err)).map_or(Ok(Vec::new()), Err)
}

/// The failure that stands for many: one that may have acted before one that did not, then one that may pass. For stores.
pub fn worst(failures: impl IntoIterator<Item = Error>) -> Option<Error> {
    failures.into_iter().max_by_key(|failure| {
        (failure.effect() == Effect::Unknown, failure.kind() == ErrorKind::Unavailable)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_outcome_unless_all_failed() {
        let denied = || Err(Error::denied("no"));
        let each = |outcomes: Vec<Result<i32>>| each_or_worst(outcomes, |_| -1);
        assert!(each(vec![]).unwrap().is_empty());
        assert_eq!(each(vec![denied(), Ok(2), denied()]).unwrap(), [-1, 2, -1]);
        assert_eq!(each(vec![denied(), denied()]).unwrap_err().kind(), ErrorKind::Denied);
    }

    #[test]
    fn a_failure_that_may_have_acted_stands_for_all() {
        let unknown = || Error::unexpected("?").with_effect(Effect::Unknown);
        let down = || Error::unavailable(Effect::NotApplied, "down");
        let denied = || Error::denied("no");
        let worst = |failures: [Error; 3]| worst(failures).map(|e| e.to_string());
        assert_eq!(worst([denied(), unknown(), down()]), Some(unknown().to_string()));
        assert_eq!(worst([down(), denied(), denied()]), Some(down().to_string()));
    }
}
