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
e2e *suite:
    cargo xtask e2e {{suite}}

# Kill the server, or the engine, while it is written to.
crash of="apiserver" *flags:
    cargo xtask crash {{of}} {{flags}}

# Figures of the embedded API server, or of the engine.
bench of="apiserver" *flags:
    cargo xtask bench {{of}} {{flags}}

# Start everything on this machine.
dev *flags:
    cargo run -- up {{flags}}
