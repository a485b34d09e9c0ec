//! Rules of the house that no compiler checks. Each check adds to one list of complaints, so that
//! one run shows all of them. Start at [`run`].

mod dependencies;
mod layers;
mod links;
mod policy;
mod sources;
mod spdx;
mod unused;

use anyhow::{Result, bail};

use crate::workspace;

/// What was found: complaints fail, warnings and remarks are only printed.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    complaints: Vec<String>,
    remarks: Vec<String>,
}

impl Findings {
    fn complain(&mut self, text: String) {
        self.complaints.push(text);
    }

    fn remark(&mut self, text: String) {
        self.remarks.push(text);
    }
}

pub(crate) fn run() -> Result<()> {
    let findings = check()?;
    for remark in &findings.remarks {
        println!("{remark}");
    }
    for complaint in &findings.complaints {
        println!("tidy: {complaint}");
    }
    if !findings.complaints.is_empty() {
        bail!("{} rules broken", findings.complaints.len());
    }
    Ok(())
}

fn check() -> Result<Findings> {
    let mut findings = Findings::default();
    let metadata = workspace::metadata()?;
    let files = workspace::files()?;
    layers::check(&metadata.packages, &mut findings);
    sources::check(&files, &mut findings)?;
    links::check(&files, &mut findings)?;
    unused::check(&metadata.packages, &files, &mut findings)?;
    dependencies::check(&dependencies::Graph::load()?, &policy::load()?, &mut findings);
    Ok(findings)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_workspace_is_tidy() {
        let findings = super::check().unwrap();
        assert_eq!(findings.complaints, Vec::<String>::new());
    }
}
