# SPDX-License-Identifier: MIT
# Lines of a commit's name and its subject: at most 72 columns, and a scope before a colon.
{ subject = substr($0, length($1) + 2) }
length(subject) > 72 { print $1 ": " length(subject) " columns: " subject; bad = 1 }
subject !~ /^[A-Za-z0-9_.*\/{}-]+([, ]+[A-Za-z0-9_.*\/{},-]+)*: [^ ]/ {
    print $1 ": no scope: " subject
    bad = 1
}
END { exit bad }
