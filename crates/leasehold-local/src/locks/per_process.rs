use std::sync::OnceLock;

/// A value that each process has for itself.
///
/// A fork copies a static, but not the threads of the parent: what they had locked stays locked in the child for ever.
/// So the child gets a value of its own.
pub(super) struct PerProcess<T>(OnceLock<Box<Value<T>>>);

struct Value<T> {
    process: u32,
    value: T,
    /// That of a child that was forked from this process.
    child: PerProcess<T>,
}

impl<T: Default> PerProcess<T> {
    pub(super) const fn new() -> Self {
        Self(OnceLock::new())
    }

    pub(super) fn get(&self) -> &T {
        let process = std::process::id();
        let mut place = self;
        loop {
            let new = || Box::new(Value { process, value: T::default(), child: Self::new() });
            let known = place.0.get_or_init(new);
            if known.process == process {
                return &known.value;
            }
            place = &known.child;
        }
    }
}
