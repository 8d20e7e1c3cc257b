# Runs one suite file in a separate process and reports every test to the runner in lines "@event ...". Started only by
# runner.tcl.
#
#   worker.tcl ROOT DIRECTORY FILE OPTIONS     (OPTIONS: a Tcl list for array set)

lassign $argv ::root ::unit_dir ::unit_file optlist
array set ::opt $optlist
set ::unit [file rootname [file tail $::unit_file]]
set ::tags {}
set ::spawn_n 0
set ::test_deadline 0
set ::at_end {}
array set ::spawned {}

foreach f {resp assert util server cluster sentinel rdma follow rows aof replica primary} {
    source [file join $::root tests harness $f.tcl]
}
expr {srand($::opt(seed))}
update_patience

# All child processes inherit this directory, so that the runner can find them.
file mkdir $::unit_dir
cd $::unit_dir

fconfigure stdout -buffering line -encoding utf-8
proc tell {args} {
    if {[catch {puts stdout "@[string map {% %25 \n %0A \r %0D} $args]"}]} {exit 1}
}

proc tags_allow {tags} {
    foreach t $::opt(deny) {if {$t in $tags} {return 0}}
    if {$::opt(allow) eq ""} {return 1}
    foreach t $::opt(allow) {if {$t in $tags} {return 1}}
    return 0
}
proc name_wanted {name} {
    if {$::opt(only) eq ""} {return 1}
    foreach o $::opt(only) {if {$o eq $name || [string match -nocase $o $name]} {return 1}}
    return 0
}
# True: a test in this body may be selected. Otherwise the server need not be started. The servers that a test itself
# starts are always wanted: their body has no tests.
proc block_wanted {options body} {
    if {$::test_deadline} {return 1}
    set tags $::tags
    if {[dict exists $options tags]} {lappend tags {*}[dict get $options tags]}
    foreach t $::opt(deny) {if {$t in $tags} {return 0}}
    if {$::opt(allow) ne "" && ![tags_allow $tags] && ![regexp -- {-tags } $body]} {return 0}
    if {$::opt(only) eq ""} {return 1}
    foreach name [test_names $body] {
        # A name that is composed at run time may match.
        if {[string match {*[$[]*} $name] || [name_wanted $name]} {return 1}
    }
    return 0
}
proc test_names {text} {
    set names {}
    foreach {- - quoted braced} [regexp -all -inline -line {^\s*test\s+("([^"\n]*)"|\{([^\}\n]*)\})} $text] {
        lappend names [expr {$quoted ne "" ? $quoted : $braced}]
    }
    return $names
}
# True: no test of this body is wanted. Tests that are excluded by a tag count as skipped; tests that --only excludes do
# not count.
proc block_left_out {options body} {
    if {[block_wanted $options $body]} {return 0}
    if {$::opt(only) ne ""} {return 1}
    foreach name [test_names $body] {tell skip $name "left out by its tags"}
    return 1
}

# A problem that belongs to no single test (a server that does not end, a leak).
proc unit_problem {text} {tell problem $text}

# test name ?-tags {..}? ?-needs {kind value ..}? ?-timeout seconds? body
proc test {name args} {
    set body [lindex $args end]
    set o [dict merge {-tags {} -needs {} -timeout 0} [lrange $args 0 end-1]]
    if {![name_wanted $name]} return
    set tags [concat $::tags [dict get $o -tags]]
    if {($::opt(rdma) || $::opt(tls)) && "tcp-only" in $tags} {
        tell skip $name "makes no sense over the [expr {$::opt(rdma) ? "RDMA" : "TLS"}] proxy"
        return
    }
    if {![tags_allow $tags]} {
        tell skip $name "left out by its tags"
        return
    }
    set line [suite_line]
    update_patience
    set seconds [expr {[dict get $o -timeout] ? [dict get $o -timeout] : $::opt(timeout)}]
    if {$::opt(valgrind)} {set seconds [expr {$seconds * 10}]}
    set seconds [expr {$seconds * $::test_patience}]
    set reason [unmet_need [dict get $o -needs]]
    if {$reason ne ""} {
        tell skip $name $reason
        return
    }
    tell start $name $line $seconds
    set ::test_deadline [expr {[clock milliseconds] + 1000 * $seconds}]
    set ::assert_line 0
    set marks {}
    foreach id $::servers {
        lappend marks $id [expr {[file exists $::server($id,log)] ? [file size $::server($id,log)] : 0}]
    }
    set before $::test_clients
    set spawned_before [array names ::spawned]
    set ::at_end {}
    set began [clock milliseconds]
    set code [catch {uplevel 1 $body} result opts]
    set took [expr {[clock milliseconds] - $began}]
    set ::test_deadline 0

    # First the at_test_end scripts, then the clients and processes of the test.
    foreach script [lreverse $::at_end] {catch {uplevel #0 $script}}
    foreach c $::test_clients {if {$c ni $before} {catch {$c -close}}}
    foreach p [array names ::spawned] {
        if {$p in $spawned_before} continue
        append spawned_text [spawn_text $p]
        kill_process KILL [spawn_pid $p]
        catch {spawn_wait $p 5000}
    }

    set why ""
    if {$code == 1} {
        set ec [dict get $opts -errorcode]
        switch -exact -- [lindex $ec 0] {
            ASSERT {set why $result; set line [expr {$::assert_line ? $::assert_line : $line}]}
            SKIP {tell skip $name $result; return}
            SERVER_DIED {set why $result}
            default {
                set why "error: $result"
                set line [error_line $line $opts]
            }
        }
        if {[clock milliseconds] - $began >= 1000 * $seconds} {set why "timed out after $seconds s: $why"}
    } elseif {$code != 0 && $code != 2} {
        set why "the test body ended with code $code"
    }

    set died {}
    set reports {}
    foreach id $::servers {
        foreach rep [server_reports $id] {lappend reports $rep}
        if {[server_died $id]} {
            # A crash handler may still be writing.
            set status [server_reap $id]
            lappend died $id
            set why "the server died ($status)[expr {$why eq "" ? "" : "; $why"}]"
        }
    }
    foreach rep $reports {append why "[expr {$why eq "" ? "" : "; "}]$rep"}

    if {$why eq ""} {
        tell ok $name $took
    } else {
        set tail ""
        foreach {id mark} $marks {append tail [log_since $id $mark]}
        if {[info exists spawned_text]} {append tail $spawned_text}
        tell fail $name $line $why $tail $took
        # The main client may be in the middle of a reply now.
        foreach id $::servers {reconnect_of $id}
    }
    foreach id $died {
        reconnect_of $id
        proxy_stop $id
        if {$::opt(durable)} {
            server_launch $id
            if {[server_wait_up $id]} continue
        }
        return -code error -errorcode SERVER_DIED "a server died"
    }
}

# skip_test reason: called in a test that finds that it cannot run.
proc skip_test {reason} {return -code error -errorcode SKIP $reason}

# at_test_end script: runs the script at global level when the test ends, even after an error. Last in, first out.
proc at_test_end {script} {lappend ::at_end $script}

# The output of a spawned process, for the report of a failure.
proc spawn_text {p} {
    set out ""
    foreach l [lrange [split [string trimright [spawn_out $p][spawn_err $p] \n] \n] end-14 end] {
        append out "      | [printable [string trimright $l \r] 300]\n"
    }
    return $out
}

# The last 15 lines that the server has written since a position, or the report of a crash.
proc log_since {id from} {
    set out ""
    foreach {f at} [list $::server($id,log) $from $::server($id,err) 0] {
        if {![file exists $f]} continue
        set ch [open $f rb]
        seek $ch $at
        set t [string trimright [read $ch] \n]
        close $ch
        if {$t eq ""} continue
        set lines [split $t \n]
        set crash [lsearch -glob $lines "*BUG REPORT START*"]
        if {$crash >= 0} {
            set lines [lrange $lines $crash $crash+45]
        } elseif {[llength $lines] > 15} \
            {set lines [concat [list "... ([llength $lines] lines)"] [lrange $lines end-14 end]]}
        foreach l $lines {append out "      | [printable [string trimright $l \r] 300]\n"}
    }
    return $out
}

# The line of the suite in which an error was raised, as far as Tcl reports it.
proc error_line {start opts} {
    # The trace ends with the body of the test; its lines count from the line of the test.
    set n 1
    foreach {- n} [regexp -all -inline {\("uplevel" body line (\d+)\)} [dict get $opts -errorinfo]] {}
    return [expr {$start + $n - 1}]
}

tell begin
set code [catch {source $::unit_file} result opts]
if {$code == 1 && [dict get $opts -errorcode] ne "SERVER_DIED"} {
    tell problem "[file tail $::unit_file]: error outside of a test: $result\n[dict get $opts -errorinfo]"
}

# Nothing may be left: servers that a broken body did not stop, processes it spawned.
foreach key [array names ::server *,stopped] {
    set id [lindex [split $key ,] 0]
    if {!$::server($key)} {catch {server_stop $id}}
}
foreach c $::test_clients {catch {$c -close}}
set left {}
for {set i 0} {$i < 40} {incr i} {
    set left [processes_below $::unit_dir]
    if {$left eq ""} break
    after 25
}
foreach pid $left {
    set cmdline ""
    catch {set cmdline [string map {\0 " "} [file_bytes /proc/$pid/cmdline]]}
    tell problem "process $pid was left behind: $cmdline"
    kill_process KILL $pid
}
tell sent {*}[lsort -unique [lmap pair [array names ::words_sent] {
    if {![regexp {^[[:alpha:]=~*$][[:alnum:]=~*$]*$} [lindex $pair 1]]} continue
    string tolower $pair
}]]
tell end
exit 0
