# A RESP2/RESP3 client in Tcl.
#
# new_client ?options? makes a connection and returns the name of a command:
#
#   set c [new_client -resp 3]
#   $c set key value          send a command, wait for the reply, return it
#   $c -send get key          send only; the reply is fetched later
#   $c -read                  fetch one reply
#   $c -typed get key         like a plain call, but the reply shows its types
#   $c -readtyped             like -read, with types
#   $c -write BYTES           put raw bytes on the wire
#   $c -readraw N             take N raw bytes from the wire
#   $c -readline              take one line from the wire, without CRLF
#   $c -available             raw bytes that can be read without waiting
#   $c -push                  the next out of band (RESP3 push) message
#   $c -eof ?ms?              1 when the server closes within that time, else 0
#   $c -timeout MS            how long a read may wait from now on
#   $c -fd                    the Tcl channel
#   $c -localport             our own port of the connection
#   $c -close
#
# An error reply becomes a Tcl error whose message is the error text without its leading '-'. A null becomes the empty
# string, a nested error its text.
#
# Typed replies show the types. A scalar is its type character followed by its text (+OK -ERR... :5 $bulk ,1.5 #t (123
# =txt:...), nulls are `nil$`, `nil*` and `_`, and an aggregate is a list whose first element is its type character: {*
# $a :1}, {% $key $value}, {~ ...}, {> ...}, {| ...}.
#
# Strings are bytes: arguments must not contain characters above 255; use [utf8 $text] to encode.

namespace eval resp {
    variable next 0
    variable S            ;# state of the clients: S(id,what)
    array set S {}
    variable default_timeout 30000
}

proc utf8 {text} { encoding convertto utf-8 $text }

# new_client ?-host H? ?-port P? ?-resp 2|3? ?-db N? ?-auth {user pass}? ?-deferring 0|1? ?-level L? ?-tcp 1? Without
# -host and -port it connects to the current server (see server.tcl), over RDMA if the run uses RDMA, unless -tcp is
# given.
proc new_client {args} {
    set o [dict create -host "" -port "" -resp 2 -db "" -auth {} -deferring 0 -level 0 -tcp 0 -timeout ""]
    foreach {k v} $args {
        if {![dict exists $o $k]} {error "new_client: unknown option $k"}
        dict set o $k $v
    }
    set host [dict get $o -host]
    set port [dict get $o -port]
    set level [dict get $o -level]
    if {$port eq ""} {
        if {[dict get $o -tcp]} {
            set port [srv $level port]
        } else {
            set port [srv $level client_port]
        }
        if {$host eq ""} {set host [srv $level host]}
    }
    if {$host eq ""} {set host 127.0.0.1}
    set fd [socket $host $port]
    fconfigure $fd -translation binary -encoding binary -blocking 0 -buffering none -buffersize 262144
    set id [incr resp::next]
    set resp::S($id,fd) $fd
    set resp::S($id,deferring) 0
    set resp::S($id,push) {}
    set resp::S($id,timeout) [expr {[dict get $o -timeout] ne "" ? [dict get $o -timeout] : $resp::default_timeout}]
    set cmd ::client$id
    interp alias {} $cmd {} resp::call $id
    lappend ::test_clients $cmd
    if {[dict get $o -auth] ne ""} {$cmd auth {*}[dict get $o -auth]}
    if {[dict get $o -resp] == 3} {$cmd hello 3}
    if {[dict get $o -db] ne ""} {$cmd select [dict get $o -db]}
    set resp::S($id,deferring) [dict get $o -deferring]
    return $cmd
}

proc resp::encode {argv} {
    set out "*[llength $argv]\r\n"
    foreach a $argv {append out "\$[string length $a]\r\n" $a "\r\n"}
    return $out
}
# A command in its wire format.
proc resp_command {args} {resp::encode $args}

proc resp::call {id args} {
    variable S
    set what [lindex $args 0]
    if {[string index $what 0] ne "-"} {
        if {![info exists S($id,fd)]} {error "client: it is closed"}
        send $id $args
        if {$S($id,deferring)} {return}
        return [reply $id]
    }
    set rest [lrange $args 1 end]
    switch -exact -- $what {
        -close {
            if {[info exists S($id,fd)]} {
                catch {fconfigure $S($id,fd) -blocking 0}
                catch {close $S($id,fd)}
            }
            array unset S $id,*
            catch {interp alias {} ::client$id {}}
            set at [lsearch -exact $::test_clients ::client$id]
            if {$at >= 0} {set ::test_clients [lreplace $::test_clients $at $at]}
            return
        }
        -open {return [info exists S($id,fd)]}
    }
    if {![info exists S($id,fd)]} {error "client: it is closed"}
    set fd $S($id,fd)
    switch -exact -- $what {
        -send {send $id $rest}
        -read {return [reply $id]}
        -typed {send $id $rest; return [typed $id]}
        -readtyped {return [typed $id]}
        -write {put $id [lindex $rest 0]}
        -flush {flush_out $id}
        -readraw {return [take $id [lindex $rest 0]]}
        -readline {return [line $id]}
        -available {
            update
            if {[catch {read $fd} data]} {return ""}
            return $data
        }
        -push {
            if {[llength $S($id,push)]} {
                set m [lindex $S($id,push) 0]
                set S($id,push) [lrange $S($id,push) 1 end]
                return $m
            }
            set l [line $id]
            if {[string index $l 0] ne ">"} {error "client: expected a push message, got [printable $l]"}
            return [plain $id $l]
        }
        -eof {
            set ms [expr {[llength $rest] ? [lindex $rest 0] : $S($id,timeout)}]
            return [at_eof $id $ms]
        }
        -timeout {set S($id,timeout) [lindex $rest 0]}
        -deferring {set S($id,deferring) [lindex $rest 0]}
        -fd {return $fd}
        -localport {return [lindex [fconfigure $fd -sockname] 2]}
        -localaddr {
            set s [fconfigure $fd -sockname]
            return [lindex $s 0]:[lindex $s 2]
        }
        -halfclose {close $fd write}
        default {error "client: unknown action $what"}
    }
    return
}

proc resp::send {id argv} {
    note $argv
    put $id [encode $argv]
}

# The words with which each command was sent, for the runner (see runner.tcl): ::words_sent({command word}).
proc resp::note {argv} {
    set name [string tolower [lindex $argv 0]]
    foreach word [lrange $argv 1 end] {
        if {[string length $word] < 20 && ![info exists ::words_sent([list $name $word])]} {
            set ::words_sent([list $name $word]) 1
        }
    }
}

proc resp::put {id bytes} {
    variable S
    if {[catch {puts -nonewline $S($id,fd) $bytes} err]} {
        error "client: connection closed while writing: $err" {} CLOSED
    }
}

# Waits until everything passed to -write has been written to the kernel.
proc resp::flush_out {id} {
    variable S
    set fd $S($id,fd)
    set end [deadline $S($id,timeout)]
    while {1} {
        if {[catch {flush $fd} err]} {error "client: connection closed while writing: $err" {} CLOSED}
        if {[chan pending output $fd] <= 0} return
        wait_channel $fd writable $end "could not write to the server"
    }
}

# Waits for the channel; raises an error at the deadline (milliseconds of the clock).
proc resp::wait_channel {fd how end what} {
    set flag ::resp::flag_$fd
    set left [expr {$end - [clock milliseconds]}]
    if {$left <= 0} {error "client: $what in time" {} TIMEOUT}
    set timer [after $left [list set $flag timeout]]
    fileevent $fd $how [list set $flag ready]
    vwait $flag
    after cancel $timer
    fileevent $fd $how {}
    if {[set $flag] eq "timeout"} {
        unset -nocomplain $flag
        error "client: $what in time" {} TIMEOUT
    }
    unset -nocomplain $flag
}

# The deadline of a wait of this number of milliseconds: not after the deadline of the running test.
proc resp::deadline {ms} {
    if {[info exists ::test_patience]} {set ms [expr {$ms * $::test_patience}]}
    set end [expr {[clock milliseconds] + $ms}]
    if {[info exists ::test_deadline] && $::test_deadline > 0 && $end > $::test_deadline} {set end $::test_deadline}
    return $end
}

proc resp::line {id} {
    variable S
    set fd $S($id,fd)
    set end 0
    while {1} {
        if {[catch {gets $fd l} n]} {error "client: connection closed by the server ($n)" {} CLOSED}
        if {$n >= 0} {
            if {[string index $l end] eq "\r"} {return [string range $l 0 end-1]}
            if {[eof $fd]} {error "client: connection closed by the server in the middle of a line" {} CLOSED}
            return $l
        }
        if {[eof $fd]} {error "client: connection closed by the server" {} CLOSED}
        if {!$end} {set end [deadline $S($id,timeout)]}
        wait_channel $fd readable $end "no reply from the server"
    }
}

proc resp::take {id n} {
    variable S
    set fd $S($id,fd)
    set end 0
    set parts {}
    while {$n > 0} {
        if {[catch {read $fd $n} data]} {error "client: connection closed by the server ($data)" {} CLOSED}
        set got [string length $data]
        if {$got} {
            lappend parts $data
            incr n -$got
            continue
        }
        if {[eof $fd]} {error "client: connection closed by the server" {} CLOSED}
        if {!$end} {set end [deadline $S($id,timeout)]}
        wait_channel $fd readable $end "no reply from the server"
    }
    if {[llength $parts] == 1} {return [lindex $parts 0]}
    return [join $parts ""]
}

proc resp::bulk {id n} {
    set data [take $id $n]
    take $id 2
    return $data
}

# 1 when the server closes the connection; data that it sent before is dropped.
proc resp::at_eof {id ms} {
    variable S
    set fd $S($id,fd)
    set end [deadline $ms]
    while {1} {
        if {[catch {read $fd 1048576} data]} {return 1}
        if {[eof $fd]} {return 1}
        if {$data ne ""} continue
        if {[catch {wait_channel $fd readable $end x}]} {return 0}
    }
}

proc resp::reply {id} {
    variable S
    while {1} {
        set l [line $id]
        switch -exact -- [string index $l 0] {
            "+" {return [string range $l 1 end]}
            ":" - "," - "(" {return [string range $l 1 end]}
            "-" {return -code error -errorcode REPLY [string range $l 1 end]}
            "!" {return -code error -errorcode REPLY [bulk $id [string range $l 1 end]]}
            ">" {lappend S($id,push) [plain $id $l]}
            "|" {aggregate $id plain [expr {2 * [string range $l 1 end]}]}
            default {return [plain $id $l]}
        }
    }
}

proc resp::aggregate {id how n} {
    set out {}
    for {set i 0} {$i < $n} {incr i} {lappend out [$how $id [line $id]]}
    return $out
}

proc resp::plain {id l} {
    set rest [string range $l 1 end]
    switch -exact -- [string index $l 0] {
        "+" - ":" - "," - "(" - "-" {return $rest}
        "\$" {
            if {$rest == -1} {return ""}
            return [bulk $id $rest]
        }
        "!" {return [bulk $id $rest]}
        "=" {return [string range [bulk $id $rest] 4 end]}
        "_" {return ""}
        "#" {return [expr {$rest eq "t"}]}
        "*" - "~" - ">" {
            if {$rest == -1} {return ""}
            return [aggregate $id plain $rest]
        }
        "%" {return [aggregate $id plain [expr {2 * $rest}]]}
        "|" {
            aggregate $id plain [expr {2 * $rest}]
            return [plain $id [line $id]]
        }
    }
    error "client: not a RESP reply: [printable $l]" {} PROTOCOL
}

proc resp::typed {id {l ""}} {
    if {$l eq ""} {set l [line $id]}
    set rest [string range $l 1 end]
    set t [string index $l 0]
    switch -exact -- $t {
        "+" - ":" - "," - "(" - "-" - "#" {return $l}
        "\$" {
            if {$rest == -1} {return "nil\$"}
            return "\$[bulk $id $rest]"
        }
        "!" - "=" {return "$t[bulk $id $rest]"}
        "_" {return "_"}
        "*" {
            if {$rest == -1} {return "nil*"}
            return [concat [list *] [aggregate $id typed $rest]]
        }
        "~" - ">" {return [concat [list $t] [aggregate $id typed $rest]]}
        "%" - "|" {return [concat [list $t] [aggregate $id typed [expr {2 * $rest}]]]}
    }
    error "client: not a RESP reply: [printable $l]" {} PROTOCOL
}

# Bytes in printable form.
proc printable {bytes {max 400}} {
    set out ""
    set n 0
    foreach c [split $bytes ""] {
        if {[incr n] > $max} {append out "...([string length $bytes] bytes)"; break}
        scan $c %c code
        if {$c eq "\r"} {append out {\r}} \
        elseif {$c eq "\n"} {append out {\n}} \
        elseif {$code < 32 || $code > 126} {append out [format {\x%02x} $code]} \
        else {append out $c}
    }
    return $out
}
