//! The arguments of a request: a map whose values must have the right types.

use super::entity::Problem;
use crate::codec::Raw;
use crate::codec::message::Sections;

#[derive(Debug)]
pub(super) struct Arguments<'a> {
    map: Raw<'a>,
}

impl<'a> Arguments<'a> {
    pub(super) fn of(request: &Sections<'a>) -> Result<Self, Problem> {
        let map = request.body_value().filter(Raw::is_map);
        let map = map.ok_or(Problem::Malformed("The body of the request must be a map."))?;
        Ok(Self { map })
    }

    /// The map under `name`, as arguments of their own.
    pub(super) fn inner(&self, name: &'static str) -> Result<Option<Self>, Problem> {
        let map = self.optional(name, "a map", |value| value.is_map().then_some(*value))?;
        Ok(map.map(|map| Self { map }))
    }

    /// An argument that may be absent or null.
    pub(super) fn optional<T>(
        &self,
        name: &'static str,
        expected: &'static str,
        read: impl FnOnce(&Raw<'a>) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        match self.map.get(name).filter(|value| !value.is_null()) {
            None => Ok(None),
            Some(value) => read(&value).map(Some).ok_or(Problem::Argument { name, expected }),
        }
    }

    pub(super) fn required<T>(
        &self,
        name: &'static str,
        expected: &'static str,
        read: impl FnOnce(&Raw<'a>) -> Option<T>,
    ) -> Result<T, Problem> {
        self.optional(name, expected, read)?.ok_or(Problem::Argument { name, expected })
    }

    pub(super) fn text(&self, name: &'static str) -> Result<Option<&'a str>, Problem> {
        self.optional(name, "a string", Raw::as_text)
    }

    pub(super) fn required_text(&self, name: &'static str) -> Result<&'a str, Problem> {
        self.required(name, "a string", Raw::as_text)
    }

    /// A number of things, from 0.
    pub(super) fn count(&self, name: &'static str) -> Result<Option<usize>, Problem> {
        let read = |value: &Raw<'_>| usize::try_from(value.as_u64()?).ok();
        self.optional(name, "a number from 0", read)
    }

    /// At least one and at most `max` values.
    pub(super) fn values<T>(
        &self,
        name: &'static str,
        max: usize,
        expected: &'static str,
        read: impl Fn(&Raw<'a>) -> Option<T>,
    ) -> Result<Vec<T>, Problem> {
        self.required(name, expected, |list| {
            let values: Option<Vec<_>> =
                list.items().take(max + 1).map(|value| read(&value)).collect();
            values.filter(|values| (1..=max).contains(&values.len()))
        })
    }
}
