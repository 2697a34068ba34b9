//! Which nodes are up, and which reach each other.

/// See the module. A node's place identifies it.
#[derive(Clone, Debug)]
pub struct Links {
    /// Nodes that are neither stopped nor being restarted.
    pub is_up: Vec<bool>,
    /// `cut[from][to]`: no message gets from one to the other.
    pub cut: Vec<Vec<bool>>,
}

impl Links {
    /// Whether a message from one node reaches another one that is up.
    #[must_use]
    pub fn carries(&self, from: usize, to: usize) -> bool {
        self.is_up[from] && self.is_up[to] && (from == to || !self.cut[from][to])
    }

    /// Whether two nodes can talk.
    #[must_use]
    pub fn joins(&self, a: usize, b: usize) -> bool {
        self.carries(a, b) && self.carries(b, a)
    }
}
