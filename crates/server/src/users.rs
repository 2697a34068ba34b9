//! Loading of users from the configuration or from their own file (`aclfile`), and saving.

use std::io;
use std::path::Path;

use access::{Change, Parsed, Rules, parse_definition, parse_file};
use base::words;
use engine::{CommandError, NO_USERS_FILE};

use crate::config::{Config, replace_file, system_reason};
use crate::node::Node;

/// Maximum size of the users' file, in bytes: some hundred thousand users.
const FILE_BYTES_MAX: u64 = 64 << 20;

impl Node {
    /// Loads the users that the configuration names, or those of their file.
    ///
    /// # Errors
    /// What is wrong with them, for standard error.
    pub fn load_users_at_start(&self, config: &Config) -> Result<(), String> {
        let path = config.acl_file.as_deref();
        if path.is_some() && !config.users.is_empty() {
            return Err(
                "Configuring users in the configuration and at the same time setting an ACL file \
                 (aclfile) is invalid: please define them in one of the two places, but not both."
                    .to_owned(),
            );
        }
        let users = match path {
            Some(path) => self.read_users(path)?,
            None => self.configured_users(config)?,
        };
        for (name, rules) in &users {
            if !rules.is_on() && rules.is_unrestricted() {
                let name = String::from_utf8_lossy(name);
                self.core.log.notice(format_args!(
                    "The user '{name}' is disabled (there is no 'on' modifier in the user \
                     description). Make sure this is not a configuration error."
                ));
            }
        }
        if path.is_some() || !users.is_empty() {
            let default = default_rules(config);
            let _nobody_is_connected = self.core.shared.access.users.replace(users, default);
        }
        Ok(())
    }

    fn configured_users(&self, config: &Config) -> Result<Parsed, String> {
        let defaults = self.core.shared.access.users.defaults();
        let mut users = Parsed::new();
        for words in &config.users {
            let definition: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let user =
                parse_definition(&definition, &users, self.core.env.table.catalog(), defaults);
            users.push(user.map_err(|error| {
                let name = definition.first().copied().unwrap_or_default();
                let name = String::from_utf8_lossy(name);
                format!("Error in user declaration '{name}': {error}")
            })?);
        }
        Ok(users)
    }

    fn read_users(&self, path: &Path) -> Result<Parsed, String> {
        let shown = path.display();
        let cannot = |error: &io::Error| {
            let reason = system_reason(error);
            format!("Error loading ACLs, opening file '{shown}': {reason}")
        };
        let length = std::fs::metadata(path).map_err(|error| cannot(&error))?;
        if length.len() > FILE_BYTES_MAX {
            return Err(format!("Error loading ACLs, file '{shown}' is too large"));
        }
        let text = std::fs::read(path).map_err(|error| cannot(&error))?;
        let defaults = self.core.shared.access.users.defaults();
        parse_file(&text, self.core.env.table.catalog(), defaults).map_err(|errors| {
            let lines = errors.iter();
            let lines = lines.map(|(line, error)| format!("{shown}:{line}: {error}. "));
            let lines: String = lines.collect();
            format!(
                "{lines}WARNING: ACL errors detected, no change to the previously active ACL rules \
                 was performed"
            )
        })
    }

    /// ACL LOAD.
    ///
    /// # Errors
    /// The error reply; nothing has changed then.
    pub fn load_users(&self) -> Result<Vec<Change>, CommandError> {
        let config = self.core.config.current();
        let path = config.acl_file.as_deref().ok_or(NO_USERS_FILE)?;
        let users = self.read_users(path).map_err(|text| {
            self.core.log.warning(format_args!("{text}"));
            CommandError::Text(format!("ERR {text}").into())
        })?;
        let default = default_rules(&config);
        Ok(self.core.shared.access.users.replace(users, default))
    }

    /// ACL SAVE.
    ///
    /// # Errors
    /// The error reply; the file is unchanged then.
    pub fn save_users(&self) -> Result<(), CommandError> {
        let config = self.core.config.current();
        let path = config.acl_file.as_deref().ok_or(NO_USERS_FILE)?;
        let mut text = self.user_lines().join(&b'\n');
        text.push(b'\n');
        replace_file(path, &text).map_err(|error| {
            let (path, reason) = (path.display(), system_reason(&error));
            self.core.log.warning(format_args!(
                "Writing ACL file '{path}' for ACL SAVE: {reason}"
            ));
            CommandError::fixed(
                "ERR There was an error trying to save the ACLs. Please check the server logs for \
                 more information",
            )
        })
    }

    fn user_lines(&self) -> Vec<Vec<u8>> {
        let users = self.core.shared.access.users.all();
        users.iter().map(|user| user.line()).collect()
    }

    /// Returns the lines about users that the configuration file must have: none if users are in a
    /// file of their own, or if there is only the default user with the rules of `requirepass`.
    pub fn configured_user_lines(&self) -> Vec<Vec<u8>> {
        let config = self.core.config.current();
        if config.acl_file.is_some() {
            return Vec::new();
        }
        let users = self.core.shared.access.users.all();
        let is_plain = |user: &access::User| {
            user.name() == access::DEFAULT && *user.rules() == default_rules(&config)
        };
        let lines = users.iter().filter(|user| !is_plain(user));
        lines.map(|user| as_directive(&user.line())).collect()
    }
}

/// Converts a line of a users' file to a directive. Words with quotes or backslashes are quoted,
/// because these have a meaning there.
fn as_directive(line: &[u8]) -> Vec<u8> {
    let words = line.split(|byte| *byte == b' ').map(|word| {
        let is_plain = words::split(word).is_ok_and(|read| read == [word]);
        match is_plain {
            true => word.to_vec(),
            false => words::quote(word).into_bytes(),
        }
    });
    words.collect::<Vec<_>>().join(&b' ')
}

/// Returns the rules of the default user if only `requirepass` concerns it.
fn default_rules(config: &Config) -> Rules {
    let mut rules = Rules::unrestricted();
    if let Some(password) = &config.password {
        rules.set_password(Some(password));
    }
    rules
}
