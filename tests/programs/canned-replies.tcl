#!/usr/bin/env tclsh8.6
# A server whose replies are what the client asks for: RAW <bytes, with \r \n \xHH> is answered with those bytes. HELLO
# is accepted, CLOSE ends the connection, LOG gives what this connection sent until then; everything else is an error.
# Writes the port it listens on to the file named by its argument.

proc number_line {text from} {
    set end [string first \r\n $text $from]
    if {$end < 0} {return ""}
    return [list [string range $text $from+1 $end-1] [expr {$end + 2}]]
}
# The first whole request of $text and the rest; empty where there is none yet.
proc request_take {text} {
    if {[string index $text 0] ne "*"} {
        set end [string first \n $text]
        if {$end < 0} {return ""}
        return [list [split [string trimright [string range $text 0 $end-1] \r]] [string range $text $end+1 end]]
    }
    set head [number_line $text 0]
    if {$head eq ""} {return ""}
    lassign $head count at
    set words {}
    for {set i 0} {$i < $count} {incr i} {
        set head [number_line $text $at]
        if {$head eq ""} {return ""}
        lassign $head len at
        if {[string length $text] < $at + $len + 2} {return ""}
        lappend words [string range $text $at [expr {$at + $len - 1}]]
        incr at [expr {$len + 2}]
    }
    return [list $words [string range $text $at end]]
}
proc readable {c} {
    append ::seen($c) [set fresh [read $c]]
    append ::input($c) $fresh
    if {[eof $c]} {
        close $c
        return
    }
    while {[set taken [request_take $::input($c)]] ne ""} {
        lassign $taken words ::input($c)
        switch -- [string tolower [lindex $words 0]] {
            raw {puts -nonewline $c [subst -nocommands -novariables [lindex $words 1]]}
            hello {puts -nonewline $c "%1\r\n\$6\r\nserver\r\n\$6\r\ncanned\r\n"}
            log {puts -nonewline $c "\$[string length $::seen($c)]\r\n$::seen($c)\r\n"}
            close {
                close $c
                return
            }
            default {puts -nonewline $c "-ERR unknown command '[lindex $words 0]'\r\n"}
        }
    }
    flush $c
}
proc accepted {c host port} {
    fconfigure $c -translation binary -blocking 0 -buffering full
    set ::input($c) ""
    fileevent $c readable [list readable $c]
}
set listener [socket -server accepted -myaddr 127.0.0.1 0]
set f [open [lindex $argv 0].new w]
puts -nonewline $f [lindex [fconfigure $listener -sockname] 2]
close $f
file rename -force [lindex $argv 0].new [lindex $argv 0]
vwait forever
