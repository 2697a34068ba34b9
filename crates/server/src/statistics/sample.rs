//! What the server was at one moment: where rows read.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use engine::{Counts, ServerMemory};
use persistence::checkpointer::Figures;
use persistence::loading::Progress;
use store::{Handle, Statistics};

use crate::config::Config;
use crate::counters::{Count, Sums};
use crate::node::Node;
use crate::tier::Standing;

/// A moment. What costs something is read when a row first asks for it, and then once.
pub(crate) struct Sample<'a> {
    pub(crate) node: &'a Node,
    pub(crate) store: RefCell<&'a mut Handle>,
    pub(crate) config: Arc<Config>,
    pub(crate) statistics: Statistics,
    pub(crate) uptime_ms: u64,
    pub(crate) now_unix_us: u64,
    memory: OnceCell<ServerMemory>,
    sums: OnceCell<Sums>,
    counts: OnceCell<Counts>,
    rates: OnceCell<[f64; 5]>,
    figures: OnceCell<Figures>,
    loading: OnceCell<Progress>,
    tier: OnceCell<Option<Standing>>,
}

impl<'a> Sample<'a> {
    /// What is now.
    pub(crate) fn take(node: &'a Node, store: &'a mut Handle) -> Self {
        Self {
            node,
            config: node.core.config.current(),
            statistics: store.statistics(),
            store: RefCell::new(store),
            uptime_ms: node.uptime_ms(),
            now_unix_us: node.core.clock.now_unix_us(),
            memory: OnceCell::new(),
            sums: OnceCell::new(),
            counts: OnceCell::new(),
            rates: OnceCell::new(),
            figures: OnceCell::new(),
            loading: OnceCell::new(),
            tier: OnceCell::new(),
        }
    }

    pub(crate) fn memory(&self) -> &ServerMemory {
        self.memory.get_or_init(|| self.node.memory())
    }

    /// What the workers counted since CONFIG RESETSTAT.
    pub(crate) fn sum(&self, count: Count) -> u64 {
        self.sums.get_or_init(|| self.node.sums()).of(count)
    }

    /// What the engines counted since then.
    pub(crate) fn counts(&self) -> &Counts {
        self.counts.get_or_init(|| self.node.counts())
    }

    /// Requests, bytes in and out, turns and nanoseconds of turns a second, of late.
    pub(crate) fn rates(&self) -> [f64; 5] {
        *self.rates.get_or_init(|| self.node.work.rates.per_second())
    }

    /// What is known of checkpoints.
    pub(crate) fn figures(&self) -> &Figures {
        self.figures.get_or_init(|| {
            self.node.persistence().map_or_else(
                || Figures {
                    last_save_unix_ms: self.node.process.started_unix_ms,
                    ..Figures::default()
                },
                |persistence| persistence.checkpointer.figures(),
            )
        })
    }

    /// How the tier stands, where there is one.
    pub(crate) fn tier(&self) -> Option<&Standing> {
        let standing = self.tier.get_or_init(|| {
            let keys = self.store.borrow().stubs();
            self.node.tier().map(|tier| tier.standing(keys))
        });
        standing.as_ref()
    }

    /// How far the loading is that goes on; zeros at other times, for tools that look for the names.
    pub(crate) fn loading(&self) -> &Progress {
        self.loading.get_or_init(|| {
            let progress = self.node.core.env.loading.progress();
            if progress.goes_on {
                progress
            } else {
                Progress::default()
            }
        })
    }

    /// The full name of a row of the command table.
    pub(crate) fn command(&self, index: engine::CommandIndex) -> String {
        let table = &self.node.core.env.table;
        table.full_name(index).unwrap_or_default().to_string()
    }
}
