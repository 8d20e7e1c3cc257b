# A client that sends requests while others fail, and checks every reply.
#
#   tclsh steady-client.tcl PORT
#
# Says "working" when the first reply has come, then works until a line arrives on standard input, and says how many
# replies it got and how long the slowest took; or what was wrong.
source [file join [file dirname [file dirname [file normalize [info script]]]] harness resp.tcl]
set ::test_clients {}
set client [new_client -host 127.0.0.1 -port [lindex $argv 0] -timeout 20000]
fconfigure stdin -blocking 0
fconfigure stdout -buffering line
set large [string repeat abcdefgh 5000]

proc check {wanted args} {
    set began [clock milliseconds]
    set got [$::client {*}$args]
    set took [expr {[clock milliseconds] - $began}]
    if {$took > $::slowest} {set ::slowest $took}
    if {$got ne $wanted} {
        puts "wrong reply to [string range $args 0 60]: [string range $got 0 60]"
        exit 1
    }
    incr ::replies
}
set replies 0
set slowest 0
set key steady:[pid]
if {[catch {
    check PONG ping
    puts working
    for {set i 0} {[gets stdin line] < 0 && ![eof stdin]} {incr i} {
        check OK set $key $i
        check $i get $key
        if {$i % 5 == 0} {check $large echo $large}
        after 2
    }
    $client del $key
    puts "$replies replies, slowest $slowest ms"
} error]} {
    puts "failed after $replies replies: $error"
    exit 1
}
