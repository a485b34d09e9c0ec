//! A `PostgreSQL` for tests: in a folder of its own, reached by a socket there, gone with the run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{tools, workspace};

/// Where tests look for it.
pub(crate) const ADDRESS_VARIABLE: &str = "TEST_POSTGRES_URL";
/// The user of Debian's package; the server refuses to run as root.
const USER: &str = "postgres";
/// Its own limit is a minute.
const START_SECONDS: &str = "300";

#[derive(Debug)]
pub(crate) struct Postgres {
    programs: PathBuf,
    folder: PathBuf,
    as_root: bool,
}

impl Postgres {
    /// Installed if it must be, and started.
    pub(crate) fn start() -> Result<Self> {
        let programs = tools::postgres()?;
        let user = workspace::output(Command::new("id").arg("-u"))?;
        let folder = std::env::temp_dir().join(format!("holdfast-postgres-{}", std::process::id()));
        // A run that was killed may have left one, and its number come round again.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let server = Self { programs, folder, as_root: user.trim() == "0" };
        if server.as_root {
            let mut chown = Command::new("chown");
            workspace::output(chown.arg(USER).arg(&server.folder))?;
        }
        let data = server.data();
        let data = data.to_string_lossy();
        server.run("initdb", &["-D", &data, "-A", "trust", "-U", USER])?;
        let socket = server.folder.to_string_lossy();
        let options = format!("-c listen_addresses= -c fsync=off -k {socket}");
        let log = server.folder.join("log");
        let log = log.to_string_lossy();
        server
            .run(
                "pg_ctl",
                &["-D", &data, "-o", &options, "-l", &log, "-w", "-t", START_SECONDS, "start"],
            )
            .context("PostgreSQL does not start")?;
        Ok(server)
    }

    pub(crate) fn address(&self) -> String {
        format!("postgres://{USER}@localhost/postgres?host={}", self.folder.display())
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<()> {
        let program = self.programs.join(program);
        let mut command = if self.as_root {
            let mut command = Command::new("runuser");
            command.args(["-u", USER, "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        // It goes where it may look.
        command.current_dir(Path::new("/")).args(arguments);
        workspace::output(&mut command).map(drop)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let data = self.data();
        let _ = self.run("pg_ctl", &["-D", &data.to_string_lossy(), "-m", "immediate", "stop"]);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
