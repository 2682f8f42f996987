use crate::{Claims, FencingToken, GroupName, LeaseId, Ttl};

/// A lease as plain data, which can be stored and handed to another process.
///
/// It carries no deadline, because clocks of two processes are not comparable: a process that adopts a lease
/// renews it once and counts from that. With the feature `serde` it is written as a JSON object whose field
/// `version` is 1:
///
/// ```json
/// {"version":1,"id":"2c1d…","claims":[{"key":"report","mode":"exclusive"}],"token":1795000000000000,"ttl_us":30000000,"group":null}
/// ```
///
/// A shared claim has `"mode":"shared"` and, with a limit, `"max":3`. `ttl_us` is `null` for a lease without end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "wire::Lease", into = "wire::Lease"))]
pub struct Lease {
    /// The id of the attempt that won it.
    pub id: LeaseId,
    /// The keys and their modes.
    pub claims: Claims,
    /// Its fencing token, where the store has them.
    pub token: Option<FencingToken>,
    /// The term that each renewal requests.
    pub ttl: Ttl,
    /// The group it is listed under.
    pub group: Option<GroupName>,
}

impl Lease {
    /// A lease without a token and a group.
    pub fn new(id: LeaseId, claims: Claims, ttl: Ttl) -> Self {
        Self { id, claims, token: None, ttl, group: None }
    }
}

#[cfg(feature = "serde")]
mod wire {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use serde::{Deserialize, Serialize};

    use crate::{Claim, Claims, Error, FencingToken, GroupName, Key, LeaseId, Mode, Ttl};

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Lease {
        version: u32,
        id: LeaseId,
        claims: Vec<WireClaim>,
        token: Option<FencingToken>,
        ttl_us: Option<u64>,
        group: Option<GroupName>,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct WireClaim {
        key: Key,
        mode: WireMode,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<NonZeroU32>,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum WireMode {
        Exclusive,
        Shared,
    }

    impl From<super::Lease> for Lease {
        fn from(lease: super::Lease) -> Self {
            let claims = lease.claims.iter().map(|claim| {
                let (mode, max) = match claim.mode {
                    Mode::Exclusive => (WireMode::Exclusive, None),
                    Mode::Shared { max } => (WireMode::Shared, max),
                };
                WireClaim { key: claim.key.clone(), mode, max }
            });
            Self {
                version: 1,
                id: lease.id,
                claims: claims.collect(),
                token: lease.token,
                ttl_us: lease.ttl.duration().map(crate::term::micros_up),
                group: lease.group,
            }
        }
    }

    impl TryFrom<Lease> for super::Lease {
        type Error = Error;

        fn try_from(wire: Lease) -> Result<Self, Error> {
            if wire.version != 1 {
                return Err(Error::incompatible(format!(
                    "the lease was written in version {}; this program reads version 1",
                    wire.version
                )));
            }
            let claims = wire.claims.into_iter().map(|claim| {
                let mode = match (claim.mode, claim.max) {
                    (WireMode::Shared, max) => Mode::Shared { max },
                    (WireMode::Exclusive, None) => Mode::Exclusive,
                    (WireMode::Exclusive, Some(_)) => {
                        return Err(Error::invalid_input("an exclusive claim has no max"));
                    }
                };
                Ok(Claim { key: claim.key, mode })
            });
            Ok(Self {
                id: wire.id,
                claims: Claims::new(claims.collect::<Result<Vec<_>, Error>>()?)?,
                token: wire.token,
                ttl: match wire.ttl_us {
                    Some(micros) => Ttl::new(Duration::from_micros(micros))?,
                    None => Ttl::NEVER,
                },
                group: wire.group,
            })
        }
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use crate::{Claim, Key, Mode};

    #[test]
    fn json_round_trips_and_its_form_is_fixed() {
        let claims = Claims::new([
            Claim { key: Key::new("a").unwrap(), mode: Mode::Exclusive },
            Claim { key: Key::new("b").unwrap(), mode: Mode::Shared { max: NonZeroU32::new(3) } },
        ])
        .unwrap();
        let mut lease = Lease::new(
            LeaseId::foreign(b"w1").unwrap(),
            claims,
            Ttl::new(Duration::from_secs(30)).unwrap(),
        );
        lease.token = Some(FencingToken::new(7).unwrap());
        let json = serde_json::to_string(&lease).unwrap();
        assert_eq!(
            json,
            r#"{"version":1,"id":"w1","claims":[{"key":"a","mode":"exclusive"},{"key":"b","mode":"shared","max":3}],"token":7,"ttl_us":30000000,"group":null}"#
        );
        assert_eq!(serde_json::from_str::<Lease>(&json).unwrap(), lease);
        for (from, to) in [
            ("\"version\":1", "\"version\":2"),
            ("\"token\":7", "\"token\":0"),
            ("\"key\":\"a\"", "\"key\":\"\""),
            ("\"ttl_us\":30000000", "\"ttl_us\":1"),
        ] {
            assert!(serde_json::from_str::<Lease>(&json.replace(from, to)).is_err(), "{to}");
        }
    }
}
