//! What goes wrong on purpose, and when: decided by the seed, and spread over the messages, so that a
//! slow machine sees as much of it as a fast one.

use std::collections::VecDeque;
use std::fmt;

use fastrand::Rng;

use crate::faults::Once;

/// Something that is done to the consumers, the database or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// `kill -9` of a consumer.
    Kill,
    /// A consumer is asked to stop, and another takes its place.
    Stop,
    RestartDatabase(Manner),
    Wire(Once),
}

/// How the database server is made to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Transactions are rolled back and connections closed.
    Fast,
    /// As a crash: connections are cut, and the server recovers by its log.
    Immediate,
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fast => "fast",
            Self::Immediate => "immediate",
        })
    }
}

/// The actions of a run, each at so many messages completed.
#[derive(Debug)]
pub(crate) struct Plan(VecDeque<(u64, Action)>);

impl Plan {
    /// Each kind of action for so many messages, and at least the given number of times.
    pub(crate) fn new(seed: u64, messages: u32) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut actions = Vec::new();
        actions.extend(vec![Action::Kill; often(messages, 2_000, 6)]);
        actions.extend(vec![Action::Stop; often(messages, 10_000, 2)]);
        let restarts = [Manner::Immediate, Manner::Fast].into_iter().cycle();
        let restarts = restarts.take(often(messages, 5_000, 4));
        for once in Once::ALL {
            actions.extend(vec![Action::Wire(once); often(messages, 5_000, 2)]);
        }
        let mut times = |count: usize| -> Vec<u64> {
            // The last tenth is quiet, so that everything finds something to happen to.
            let end = u64::from(messages) * 9 / 10;
            let mut times: Vec<u64> = (0..count).map(|_| random.u64(100..end)).collect();
            times.sort_unstable();
            times
        };
        // Restarts take turns, whatever their times are.
        let restart_times = times(restarts.clone().count());
        let restarts = restart_times.into_iter().zip(restarts.map(Action::RestartDatabase));
        let mut planned: Vec<(u64, Action)> = restarts.collect();
        let action_times = times(actions.len());
        random.shuffle(&mut actions);
        planned.extend(action_times.into_iter().zip(actions));
        planned.sort_by_key(|(time, _)| *time);
        Self(planned.into())
    }

    /// The next action whose time has come.
    pub(crate) fn due(&mut self, completed: u64) -> Option<Action> {
        self.0.pop_front_if(|(time, _)| *time <= completed).map(|(_, action)| action)
    }

    /// Puts off an action that cannot be done now.
    pub(crate) fn put_back(&mut self, action: Action) {
        self.0.push_front((0, action));
    }

    pub(crate) fn is_done(&self) -> bool {
        self.0.is_empty()
    }
}

fn often(messages: u32, one_in: u32, at_least: usize) -> usize {
    usize::try_from(messages / one_in).unwrap_or(usize::MAX).max(at_least)
}
