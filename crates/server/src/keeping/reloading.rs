//! DEBUG RELOAD: saves all data, drops it and loads it again, as a restart would.
//!
//! Meanwhile clients get the error that data is being loaded. The log and observers see none of it,
//! because the data is the same afterwards.

use engine::{CommandError, ReloadOptions, scripts};
use reactor::workers::available_cores;

use crate::node::Node;
use persistence::checkpointer::Why;
use persistence::recovery::{Onto, Place, load_checkpoint};

impl Node {
    /// Saves, drops everything and loads, each if the options say so. Not for a thread that is in
    /// the store.
    ///
    /// # Errors
    /// The error reply. If loading failed, the store has only a part of the data.
    pub(crate) fn reload(&self, options: ReloadOptions) -> Result<(), CommandError> {
        if !options.saves && self.core.config.current().durability.level.has_log() {
            return Err(CommandError::fixed(
                "ERR DEBUG RELOAD NOSAVE would take back what the log has",
            ));
        }
        self.begin_loading(0);
        // A thread that is in the store now may not have seen that; later ones do.
        self.core.store.handle().exclusive(|_| ());
        // From here on no log begins or ends. One that has just begun makes a checkpoint of the
        // data present by then.
        let persistence = self.persistence();
        let is_changing = persistence.is_some_and(|it| it.log().state().is_changing());
        let reloaded = match is_changing {
            true => Err("the log is just being begun or ended".to_owned()),
            false => self.reload_alone(options),
        };
        self.end_loading();
        reloaded.map_err(|reason| {
            self.core
                .log
                .warning(format_args!("Reloading the data failed: {reason}"));
            CommandError::fixed("ERR Error trying to load the RDB dump, check server logs.")
        })
    }

    fn reload_alone(&self, options: ReloadOptions) -> Result<(), String> {
        if options.saves {
            let saved = self.save_for(Why::Reload);
            saved.map_err(|_| "it was not saved".to_owned())?;
        }
        let place = Place::within(&self.core.config.current().dir);
        let manifest = place.manifest().map_err(|fault| fault.to_string())?;
        let manifest = manifest.ok_or_else(|| "nothing was saved".to_owned())?;
        self.begin_loading(manifest.bytes());
        let libraries = &manifest.libraries;
        let installed = match options.flushes {
            true => scripts::install(&self.core.shared.scripts, libraries),
            false => scripts::add_libraries(&self.core.shared.scripts, libraries, options.merges),
        };
        installed.map_err(|error| String::from_utf8_lossy(&error.text()).into_owned())?;
        if options.flushes {
            self.core
                .store
                .handle()
                .exclusive(|handle| handle.flush(None));
        }
        let onto = match options {
            ReloadOptions { merges: true, .. } => Onto::Older,
            ReloadOptions { flushes: true, .. } => Onto::Empty,
            _ => Onto::Others,
        };
        let loaded = load_checkpoint(&self.core.env, &place, &manifest, available_cores(), onto);
        loaded.map_err(|fault| fault.to_string())?;
        if options.flushes
            && let Some(persistence) = self.persistence()
        {
            persistence
                .checkpointer
                .note_clean(manifest.created_unix_ms);
        }
        Ok(())
    }
}
