//! What errors of the driver and of the server mean.

use std::error::Error as StdError;

use tiberius::error::Error;

use crate::store::{Fault, StoreError};

/// A lock was not to be had in the time that the statement allows.
pub(super) const LOCK_TIMEOUT: u32 = 1222;

const NO_SUCH_OBJECT: u32 = 208;

/// A unique constraint or primary key, and a unique index, has the value already.
const TAKEN: [u32; 2] = [2627, 2601];

pub(super) fn failed(operation: &'static str) -> impl Fn(Error) -> StoreError {
    move |error| StoreError::new(operation, fault(&error), error)
}

/// What an error of a claim of many means: a key that was taken while the statement ran was not
/// there when it began, and is a lost race.
pub(super) fn claim_failed(error: Error) -> StoreError {
    match error.code() {
        Some(code) if TAKEN.contains(&code) => StoreError::new("claim", Fault::Contention, error),
        _ => failed("claim")(error),
    }
}

/// What an error of the guard and the commit means. What is not the server's answer says nothing,
/// and what ends the connection comes from anywhere.
pub(super) fn not_committed(error: Error) -> StoreError {
    let fault = match fault(&error) {
        Fault::Unavailable => Fault::InDoubt,
        _ if error.code().is_none() => Fault::InDoubt,
        fault => fault,
    };
    StoreError::new("commit", fault, error)
}

pub(super) fn is_locked(error: &Error) -> bool {
    error.code() == Some(LOCK_TIMEOUT)
}

pub(super) fn is_without_table(error: &Error) -> bool {
    error.code() == Some(NO_SUCH_OBJECT)
}

/// What the database's part in a handler's error means, also behind the handler's own types.
pub(super) fn fault_in(error: &(dyn StdError + 'static)) -> Option<Fault> {
    Some(match part_of_database(error)? {
        Part::Driver(error) => fault(error),
        Part::Told(told) => server_fault(told.number, told.class),
    })
}

/// The message of the server's error in a handler's, if it is that a value is taken.
pub(super) fn taken_in(error: &(dyn StdError + 'static)) -> Option<String> {
    let (number, message) = match part_of_database(error)? {
        Part::Driver(Error::Server(error)) => (error.code(), error.message().to_owned()),
        Part::Driver(_) => return None,
        Part::Told(told) => (told.number, told.message),
    };
    TAKEN.contains(&number).then_some(message)
}

enum Part<'a> {
    Driver(&'a Error),
    Told(Told),
}

/// What the text of the driver's error says of the server's.
struct Told {
    number: u32,
    class: u8,
    message: String,
}

/// `anyhow` hides the driver's error, which has no other behind it. Its text is left then.
fn part_of_database<'a>(error: &'a (dyn StdError + 'static)) -> Option<Part<'a>> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<Error>() {
            return Some(Part::Driver(error));
        }
        if let Some(told) = told(&error.to_string()) {
            return Some(Part::Told(told));
        }
        next = error.source();
    }
    None
}

fn told(text: &str) -> Option<Told> {
    let (message, rest) = text.strip_prefix("Token error: '")?.rsplit_once("' on server ")?;
    let (number, rest) = rest.rsplit_once(" (code: ")?.1.split_once(", state: ")?;
    let (_, class) = rest.strip_suffix(')')?.split_once(", class: ")?;
    let (number, class) = (number.parse().ok()?, class.parse().ok()?);
    Some(Told { number, class, message: message.to_owned() })
}

/// What an error before the commit means.
pub(super) fn fault(error: &Error) -> Fault {
    match error {
        Error::Io { .. } | Error::Tls(_) | Error::Routing { .. } => Fault::Unavailable,
        Error::Server(error) => server_fault(error.code(), error.class()),
        _ => Fault::Refused,
    }
}

/// Errors of this class and above end the connection.
const FATAL: u8 = 20;

/// What an error of the server before the commit means, by its number and class. Numbers: "Database
/// Engine events and errors" and "Troubleshoot transient connection errors" of Azure SQL.
fn server_fault(number: u32, class: u8) -> Fault {
    match number {
        // Deadlock, lock wait, a row changed since the snapshot.
        1205 | LOCK_TIMEOUT | 3960 => Fault::Contention,
        // The same for memory-optimized tables: another's commit, conflict, validation, dependency.
        41301 | 41302 | 41305 | 41325 | 41839 => Fault::Contention,
        // Azure SQL: gone over to another server, busy, not there, too many requests or sessions.
        40143 | 40197 | 40501 | 40540 | 40613 | 42108 | 42109 | 49918 | 49919 | 49920 | 10928
        | 10929 => Fault::Unavailable,
        // Azure SQL: ended for its length, locks, temporary space, log or memory; quota reached.
        40544 | 40549 | 40550 | 40551 | 40552 | 40553 => Fault::Unavailable,
        // No locks, no memory, disk or log full.
        1204 | 701 | 802 | 8645 | 8651 | 1101 | 1105 | 9002 => Fault::Unavailable,
        // Wrong user or password, locked out, expired; no such database, or not for this user.
        18451 | 18452 | 18456 | 18461 | 18470 | 18486 | 18487 | 18488 | 4060 | 4064 | 916 => {
            Fault::Unavailable
        }
        // The database is in recovery, restored, suspect, offline, or has one user at a time.
        921 | 922 | 923 | 924 | 926 | 927 | 942 | 945 | 5063 => Fault::Unavailable,
        // The replica cannot be read, or not be written, as during a fail-over.
        976 | 978 | 979 | 982 | 983 | 3906 | 3908 | 4221 => Fault::Unavailable,
        // The server shuts down, pauses, or has ended the session.
        596 | 6005 | 17142 | 17187 | 17188 | 9001 => Fault::Unavailable,
        _ if class >= FATAL => Fault::Unavailable,
        // A text that is too long for its column, or is no date, time or number.
        2628 | 8152 | 241 | 242 | 245 | 8114 => Fault::Unstorable,
        _ => Fault::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Fault::{Contention, InDoubt, Refused, Unavailable, Unstorable};

    /// The number, its class, and what it means, from the documentation of the server.
    const ERRORS: &[(u32, u8, Fault)] = &[
        (1205, 13, Contention),
        (1222, 16, Contention),
        (3960, 16, Contention),
        (41302, 16, Contention),
        (40197, 17, Unavailable),
        (40501, 20, Unavailable),
        (40613, 17, Unavailable),
        (49918, 16, Unavailable),
        (10928, 20, Unavailable),
        (1204, 19, Unavailable),
        (9002, 17, Unavailable),
        (18456, 14, Unavailable),
        (4060, 11, Unavailable),
        (916, 14, Unavailable),
        (922, 14, Unavailable),
        (3906, 16, Unavailable),
        (976, 14, Unavailable),
        (6005, 10, Unavailable),
        // Whatever ends the connection: here a handler's own error of the highest class.
        (50000, 20, Unavailable),
        (823, 24, Unavailable),
        // Truncated, with and without the column's name; conversions.
        (2628, 16, Unstorable),
        (8152, 16, Unstorable),
        (241, 16, Unstorable),
        (245, 16, Unstorable),
        (8114, 16, Unstorable),
        // Divided by zero: it may be about the values of other rows.
        (8134, 16, Refused),
        // Unique constraint, unique index, foreign key or check, null.
        (2627, 14, Refused),
        (2601, 14, Refused),
        (547, 16, Refused),
        (515, 16, Refused),
        // No such table, no such column, no permission.
        (208, 16, Refused),
        (207, 16, Refused),
        (229, 14, Refused),
        // A doomed transaction that is written to, and one that the batch leaves behind.
        (3930, 16, Refused),
        (3998, 16, Refused),
        (50001, 16, Refused),
    ];

    #[test]
    fn numbers_and_classes_say_what_an_error_means() {
        for (number, class, fault) in ERRORS {
            assert_eq!(server_fault(*number, *class), *fault, "{number}");
        }
    }

    fn broken() -> Error {
        std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
    }

    #[test]
    fn what_is_not_the_servers_answer_leaves_a_commit_in_doubt() {
        assert_eq!(fault(&broken()), Unavailable);
        assert_eq!(not_committed(broken()).fault(), InDoubt);
        let lost_step = || Error::Protocol("invalid token type ff".into());
        assert_eq!(fault(&lost_step()), Refused);
        assert_eq!(not_committed(lost_step()).fault(), InDoubt);
    }

    #[test]
    fn the_drivers_error_is_found_behind_others() {
        #[derive(Debug, thiserror::Error)]
        #[error("the order could not be stored")]
        struct NotStored(#[source] Error);
        assert_eq!(fault_in(&NotStored(broken())), Some(Unavailable));
        assert_eq!(fault_in(&std::io::Error::other("no database")), None);
    }
}
