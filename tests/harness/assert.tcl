# Assertions. Each raises an error with code ASSERT, whose message has the expected and the actual value.

# The line of the suite that is being executed. Tcl reports an absolute line for a script that is a literal of the file,
# and a relative line for a script that was passed as an argument; such a script starts on the line of its command.
proc suite_line {} {
    set line 0
    for {set i 1} {$i <= [info frame]} {incr i} {
        set f [info frame $i]
        switch -exact -- [dict get $f type] {
            source {if {[dict get $f file] eq $::unit_file} {set line [dict get $f line]}}
            eval {if {$line} {incr line [expr {[dict get $f line] - 1}]}}
        }
    }
    return $line
}

proc fail_assertion {message} {
    set ::assert_line [suite_line]
    return -level 2 -code error -errorcode ASSERT $message
}

proc shown {v} {
    if {[string length $v] > 600} {
        return "'[printable [string range $v 0 250]] ... [printable [string range $v end-100 end]]' ([string\
            length $v] bytes)"
    }
    return "'[printable $v 600]'"
}

# assert {expr}: the expression, in the caller's scope, is true.
proc assert {condition {detail ""}} {
    if {![uplevel 1 [list expr $condition]]} {
        if {$detail eq ""} {catch {set detail [uplevel 1 [list subst -nocommands $condition]]}}
        fail_assertion "not true: $condition[expr {$detail eq "" ? "" : " (that is: [printable $detail])"}]"
    }
}
proc assert_equal {expected actual {detail ""}} {
    if {$expected ne $actual} {
        fail_assertion "expected [shown $expected], got [shown $actual][expr {$detail eq "" ? "" : " ($detail)"}]"
    }
}
proc assert_not_equal {unexpected actual {detail ""}} {
    if {$unexpected eq $actual} {
        fail_assertion "did not expect [shown $actual][expr {$detail eq "" ? "" : " ($detail)"}]"
    }
}
proc assert_match {pattern actual {detail ""}} {
    if {![string match $pattern $actual]} {
        fail_assertion "expected something like [shown $pattern], got [shown\
            $actual][expr {$detail eq "" ? "" : " ($detail)"}]"
    }
}
proc assert_not_match {pattern actual {detail ""}} {
    if {[string match $pattern $actual]} {
        fail_assertion "expected nothing like [shown $pattern], got [shown\
            $actual][expr {$detail eq "" ? "" : " ($detail)"}]"
    }
}
proc assert_regexp {pattern actual {detail ""}} {
    if {![regexp -- $pattern $actual]} {
        fail_assertion "expected to match [shown $pattern], got [shown\
            $actual][expr {$detail eq "" ? "" : " ($detail)"}]"
    }
}
# assert_error text script: the script fails with exactly that message.
proc assert_error {text script} {
    if {![catch {uplevel 1 $script} got opts]} {
        fail_assertion "expected the error [shown $text], got the result [shown $got]"
    }
    if {[dict get $opts -errorcode] eq "ASSERT"} {fail_assertion $got}
    if {$got ne $text} {fail_assertion "expected the error [shown $text], got the error [shown $got]"}
}
# assert_error_like pattern script: the script fails with a message that matches the glob pattern.
proc assert_error_like {pattern script} {
    if {![catch {uplevel 1 $script} got opts]} {
        fail_assertion "expected an error like [shown $pattern], got the result [shown $got]"
    }
    if {[dict get $opts -errorcode] eq "ASSERT"} {fail_assertion $got}
    if {![string match $pattern $got]} {
        fail_assertion "expected an error like [shown $pattern], got the error [shown $got]"
    }
}
# Bounds are inclusive.
proc assert_range {value low high {detail ""}} {
    if {!([string is double -strict $value] && $value >= $low && $value <= $high)} {
        fail_assertion "expected $low..$high, got [shown $value][expr {$detail eq "" ? "" : " ($detail)"}]"
    }
}
proc assert_lessthan {a b {detail ""}} {
    if {!($a < $b)} {fail_assertion "expected $a < $b[expr {$detail eq "" ? "" : " ($detail)"}]"}
}
proc assert_morethan {a b {detail ""}} {
    if {!($a > $b)} {fail_assertion "expected $a > $b[expr {$detail eq "" ? "" : " ($detail)"}]"}
}
# The two lists have the same elements, in any order.
proc assert_same_elements {expected actual} {
    if {[lsort $expected] ne [lsort $actual]} {
        fail_assertion "expected the elements [shown [lsort $expected]], got [shown [lsort $actual]]"
    }
}
proc assert_in {value list} {
    if {$value ni $list} {fail_assertion "expected one of [shown $list], got [shown $value]"}
}
# Converts a typed reply as written in tests to the form that resp.tcl returns.
proc typed_form {t} {
    if {[string index $t 0] in {* % ~ > |} && ![catch {lindex $t 0} first] && $first in {* % ~ > |}} {
        return [concat [list $first] [lmap e [lrange $t 1 end] {typed_form $e}]]
    }
    return $t
}
# assert_typed expected command...: the reply of the main client, with its types (see resp.tcl).
proc assert_typed {expected args} {assert_reply r $expected {*}$args}
# assert_reply client expected command...: the same for another client.
proc assert_reply {client expected args} {
    set expected [typed_form $expected]
    set got [$client -typed {*}$args]
    if {$got ne $expected} {
        fail_assertion "expected the reply [shown $expected], got [shown $got] (to [printable $args])"
    }
}
# The commands are rejected because of the number of their arguments.
proc assert_arity {args} {
    assert_typed "-ERR wrong number of arguments for '[string tolower [lindex $args 0]]' command" {*}$args
}
# The same for a subcommand of a container.
proc assert_sub_arity {args} {
    set name [string tolower [lindex $args 0]|[lindex $args 1]]
    assert_typed "-ERR wrong number of arguments for '$name' command" {*}$args
}
proc arity_errors {commands} {foreach command $commands {assert_arity {*}$command}}
# wrong_types {command ...}: each is rejected because the key holds another type.
proc wrong_types {commands} {
    set want "-WRONGTYPE Operation against a key holding the wrong kind of value"
    foreach command $commands {assert_typed $want {*}$command}
}
# other_type key: gives the key a value that is not a string.
proc other_type {key} {
    r del $key
    assert_typed :1 rpush $key x
}
proc assert_syntax_error {args} {assert_typed "-ERR syntax error" {*}$args}
proc assert_encoding {encoding key} {
    set got [r object encoding $key]
    if {$got ne $encoding} {fail_assertion "expected the encoding [shown $encoding] of $key, got [shown $got]"}
}
# The server rejects the client at maxclients, with an error; over TLS without one, because the handshake is not
# complete.
proc assert_too_many_clients {c} {
    if {!$::opt(tls)} {assert_equal "-ERR max number of clients reached" [$c -readline]}
    assert_closed $c
}
proc assert_closed {client {ms 5000}} {
    if {![$client -eof $ms]} {fail_assertion "expected the server to close the connection"}
}
# replies {{command} reply {command} reply ...}: each command, in order, gets exactly that typed reply. Only backslashes
# in quoted words are substituted, as in any Tcl list.
proc replies {pairs {client r}} {
    foreach {command expected} $pairs {assert_reply $client $expected {*}$command}
}
