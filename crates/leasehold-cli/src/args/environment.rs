//! Defaults of options, from the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;

use crate::failure::Failure;

/// What the name of every variable begins with.
const PREFIX: &str = "LEASEHOLD_";

/// The variables that set the default of an option, without the prefix.
const OPTIONS: [&str; 8] = [
    "TTL",
    "WAIT",
    "KILL_AFTER",
    "ON_LOST",
    "LOCK_DELAY",
    "MAX_HOLD",
    "COMMENT",
    "CONFLICT_EXIT_CODE",
];

/// Those of them that concern the command.
const OF_COMMAND: [&str; 2] = ["KILL_AFTER", "ON_LOST"];

/// The others that are known: those that name the store, and those of a command under a lock.
const OTHERS: [&str; 5] = ["STORE", "STORE_FILE", "KEY", "TOKEN", "LEASE_FILE"];

/// The variables of this program, without the prefix of their names. One that is empty counts as not set.
#[derive(Debug, Default)]
pub(crate) struct Environment(BTreeMap<String, OsString>);

impl Environment {
    /// That of this process.
    pub(crate) fn of_process() -> Self {
        std::env::vars_os().collect()
    }

    /// What concerns the command alone, and not how its lease is acquired.
    pub(super) fn of_command(&self) -> Self {
        let of_command = |(name, _): &(&String, _)| OF_COMMAND.contains(&name.as_str());
        Self(
            self.0
                .iter()
                .filter(of_command)
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )
    }

    /// The names that mean nothing, as a mistyped one does.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = String> {
        let is_known = |name: &&String| OPTIONS.iter().chain(&OTHERS).any(|known| known == name);
        // Kubernetes describes a service of the name `leasehold` so.
        let is_foreign = |name: &&String| name.starts_with("SERVICE_") || name.starts_with("PORT");
        self.0
            .keys()
            .filter(move |name| !is_known(name) && !is_foreign(name))
            .map(|name| format!("{PREFIX}{name}"))
    }

    /// The default of an option.
    ///
    /// # Errors
    /// Names the variable, and what it must be.
    pub(super) fn option<T, E: Display>(
        &self,
        option: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Failure> {
        debug_assert!(OPTIONS.contains(&option), "{option}");
        let Some(value) = self.0.get(option) else { return Ok(None) };
        let refused = |why: String| {
            Failure::usage(format!("the environment variable {PREFIX}{option} is {value:?}: {why}"))
        };
        let text = value.to_str().ok_or_else(|| refused("it is not UTF-8".to_owned()))?;
        parse(text).map(Some).map_err(|error| refused(error.to_string()))
    }
}

impl FromIterator<(OsString, OsString)> for Environment {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(variables: I) -> Self {
        let own = variables.into_iter().filter_map(|(name, value)| {
            let name = name.to_string_lossy().strip_prefix(PREFIX)?.to_owned();
            (!value.is_empty()).then_some((name, value))
        });
        Self(own.collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::values;
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        variables.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn what_is_set_is_parsed_and_a_mistake_names_the_variable() {
        let set = environment(&[("LEASEHOLD_WAIT", "3"), ("LEASEHOLD_TTL", ""), ("WAIT", "9")]);
        assert_eq!(set.option("WAIT", values::wait).unwrap(), Some(Duration::from_secs(3)));
        assert_eq!(set.option("TTL", values::ttl).unwrap(), None);
        let bad = environment(&[("LEASEHOLD_TTL", "5 parsecs")]);
        let error = bad.option("TTL", values::ttl).unwrap_err().to_string();
        assert!(error.contains("LEASEHOLD_TTL is \"5 parsecs\": "), "{error}");
        assert!(error.contains("such as 30s"), "{error}");
    }

    #[test]
    fn unknown_names_are_found() {
        let set = environment(&[
            ("LEASEHOLD_TLL", "3s"),
            ("LEASEHOLD_STORE", "x:"),
            ("LEASEHOLD_PORT_1_TCP", "b"),
        ]);
        assert_eq!(set.unknown().collect::<Vec<_>>(), ["LEASEHOLD_TLL"]);
    }
}
