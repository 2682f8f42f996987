//! Serde for the vocabulary: a text type is written as its text, a token as a number.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

use crate::{FencingToken, GroupName, Key, LeaseId};

macro_rules! as_text {
    ($($name:ident),+) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Cow::<str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )+};
}

as_text!(GroupName, Key, LeaseId);

impl Serialize for FencingToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.get())
    }
}

impl<'de> Deserialize<'de> for FencingToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(u64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;

    use super::*;

    fn is_written_as<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, json: &str) {
        assert_eq!(serde_json::to_string(&value).unwrap(), json);
        assert_eq!(serde_json::from_str::<T>(json).unwrap(), value);
    }

    #[test]
    fn every_type_round_trips() {
        is_written_as(Key::new("a\"b").unwrap(), r#""a\"b""#);
        is_written_as(GroupName::new("job-7").unwrap(), r#""job-7""#);
        is_written_as(LeaseId::foreign(b"w1").unwrap(), r#""w1""#);
        is_written_as(LeaseId::foreign(&[0xff, 0]).unwrap(), r#""hex:ff00""#);
        is_written_as(FencingToken::new(7).unwrap(), "7");
    }

    #[test]
    fn invalid_values_are_refused() {
        assert!(serde_json::from_str::<Key>(r#""""#).unwrap_err().to_string().contains("empty"));
        assert!(serde_json::from_str::<LeaseId>(r#""hex:0""#).is_err());
        assert!(serde_json::from_str::<FencingToken>("0").is_err());
    }
}
