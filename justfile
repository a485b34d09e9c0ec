# What people type. The logic is in `cargo xtask`.

# List the recipes.
default:
    @just --list

# Format, lint, and check the rules of the house.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo xtask tidy

# Everything that must hold before a change is merged.
test:
    cargo xtask test

# Real clients against the real binary.
e2e *filter:
    cargo xtask e2e {{filter}}

# Kill the server while it is written to.
crash rounds="100":
    cargo xtask crash --rounds {{rounds}}

# Figures of the embedded API server.
bench:
    cargo xtask bench apiserver

# Start everything on this machine.
dev *flags:
    cargo run -- up {{flags}}
