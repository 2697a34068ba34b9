//! Changes of what the nodes of a control group share, users and libraries of functions: what a command wants, in a form that
//! whoever waits for the group can make, on whichever thread.

use protocol::Reply;

use crate::error::CommandError;
use crate::shared::Shared;

/// What is to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedPart {
    /// A user, by name. It is a line of a file of users.
    User(Vec<u8>),
    /// All libraries of functions. They are as FUNCTION DUMP gives them.
    Libraries,
}

/// Says what a part is to be, from what it is here; none removes it. It is asked again where another change came first.
pub type MakePart = Box<dyn Fn(&Shared) -> Result<Option<Vec<u8>>, CommandError> + Send + Sync>;

/// Is called once all of a change holds here, with how many parts have changed; writes the reply.
pub type WhenDone = Box<dyn Fn(&Shared, usize, &mut Reply<'_>) + Send + Sync>;

/// A change that its client waits for.
pub struct SharedChange {
    /// What is changed, one after the other.
    pub parts: Vec<(SharedPart, MakePart)>,
    /// What is done then.
    pub when_done: WhenDone,
}
