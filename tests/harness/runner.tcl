# The test runner: reads the options, distributes the suite files to worker processes, monitors them and prints the
# summary. Started by ./runtest, which owns the directory of the run ($VALKEY_TEST_RUN) and removes everything after the
# run.

set ::root [file normalize [file join [file dirname [info script]] .. ..]]

proc usage {} {
    puts "usage: ./runtest \[options]

  --single UNIT      run only this suite (repeatable; glob; the name of its file, as --list shows it, or of a family)
  --skip-unit UNIT   leave this suite out (repeatable; glob)
  --only NAME        run only tests with this name (repeatable; glob)
  --tags A,-B        only tests tagged A, none tagged B
  --suite DIR        the suites of tests/DIR (default: integration)
  --clients N        suites that run at the same time (default TEST_CLIENTS of the environment, or 2)
  --server PATH      server to test (default src/valkey-server; a genuine one works too)
  --ours             treat the server as this project's even if it stands outside of the tree
  --rdma             all clients of the suites speak RDMA
  --tls              all clients of the suites speak TLS, with certificates made for the run
  --rdma-host IP     the address of the RDMA device (default 127.0.0.1)
  --io-threads N     servers of the suites have N I/O threads
  --slots            servers of the suites keep the keys of each hash slot in a table of its own
  --launcher CMD     start servers and RDMA helpers through this command (a software RDMA device)
  --loops N          run everything N times
  --timeout S        seconds a test may take (default 60)
  --durable          start a server that died again and go on with the suite
  --valgrind         run the server under valgrind
  --seed N           seed of the random numbers (printed with every run)
  --retry            run a suite that failed once more, alone, after the others (default with TEST_RETRY=yes).
                     The second result counts; the first is listed. A crash or a sanitizer's report is never forgiven
  --junit FILE       write the results as JUnit, too (default with TEST_REPORTS=DIR: DIR/SUITE.xml)
  --list             show the suites and their tests, run nothing
  --verbose          show every test
  --help             this text

The last line is \"N passed, N failed\", followed by \", N skipped\" when tests were skipped.
Exit status 0 when at least one test ran and none failed, else 1."
}

proc bad {message} {
    puts stderr "runtest: $message (see --help)"
    exit 1
}

array set o {
    single {} skipunit {} only {} allow {} deny {} suite integration clients 2 server "" ours "" rdma 0 tls 0 launcher \
        {} rdma_host 127.0.0.1 io_threads 0 slots 0
    loops 1 timeout 60 durable 0 valgrind 0 seed "" list 0 verbose 0 junit "" retry 0
}
if {[info exists ::env(TEST_CLIENTS)] && [string is integer -strict $::env(TEST_CLIENTS)]} {
    set o(clients) [expr {max(1, $::env(TEST_CLIENTS))}]
}
if {[info exists ::env(TEST_RETRY)] && $::env(TEST_RETRY) eq "yes"} {set o(retry) 1}
proc next_value {} {
    global argv at
    incr at
    if {$at >= [llength $argv]} {bad "[lindex $argv [expr {$at - 1}]] needs a value"}
    return [lindex $argv $at]
}
proc next_number {min} {
    set name [lindex $::argv $::at]
    set v [next_value]
    if {![string is integer -strict $v] || $v < $min} {bad "$name needs a number of at least $min"}
    return $v
}
for {set at 0} {$at < [llength $argv]} {incr at} {
    switch -exact -- [lindex $argv $at] {
        --single {lappend o(single) [regsub {\.tcl$} [file tail [next_value]] ""]}
        --skip-unit {lappend o(skipunit) [regsub {\.tcl$} [file tail [next_value]] ""]}
        --only {lappend o(only) [next_value]}
        --tags {
            foreach t [split [next_value] ", "] {
                if {$t eq ""} continue
                if {[string index $t 0] eq "-"} {lappend o(deny) [string range $t 1 end]} else {lappend o(allow) $t}
            }
        }
        --suite {set o(suite) [next_value]}
        --clients {set o(clients) [next_number 1]}
        --server {set o(server) [next_value]}
        --ours {set o(ours) 1}
        --rdma {set o(rdma) 1}
        --tls {set o(tls) 1}
        --io-threads {set o(io_threads) [next_number 1]}
        --slots {set o(slots) 1}
        --launcher {set o(launcher) [next_value]}
        --rdma-host {set o(rdma_host) [next_value]}
        --loops {set o(loops) [next_number 1]}
        --timeout {set o(timeout) [next_number 1]}
        --durable {set o(durable) 1}
        --valgrind {set o(valgrind) 1}
        --seed {set o(seed) [next_number 0]}
        --junit {set o(junit) [next_value]}
        --retry {set o(retry) 1}
        --list {set o(list) 1}
        --verbose - -v {set o(verbose) 1}
        --help - -h {usage; exit 0}
        default {bad "unknown option [lindex $argv $at]"}
    }
}

set dir [file join $::root tests $o(suite)]
if {![file isdirectory $dir]} {bad "there is no tests/$o(suite)"}
# A name that no suite has stands for the suites that begin with it: "replication" for "replication-primary" and others.
set o(single) [lmap s $o(single) {
    set family [glob -nocomplain -directory $dir -tails -- $s-*.tcl]
    expr {$family ne "" && ![file exists [file join $dir $s.tcl]] ? "$s-*" : $s}
}]
set units {}
foreach f [lsort [glob -nocomplain -directory $dir *.tcl]] {
    set name [file rootname [file tail $f]]
    if {$o(single) ne ""} {
        set hit 0
        foreach s $o(single) {if {[string match $s $name]} {set hit 1}}
        if {!$hit} continue
    }
    set out 0
    foreach s $o(skipunit) {if {[string match $s $name]} {set out 1}}
    if {$out} continue
    set ch [open $f]
    fconfigure $ch -encoding utf-8
    set text [read $ch]
    close $ch
    # A long suite says "seconds: N" in a comment, so that it is started early.
    set weight 1
    regexp -line {^#.*\mseconds: (\d+)} $text -> weight
    lappend units [list $name $f $weight $text]
}
foreach s $o(single) {
    if {[lsearch -glob [lmap u $units {lindex $u 0}] $s] < 0} {bad "there is no suite $s in tests/$o(suite)"}
}
if {![llength $units]} {bad "there are no suites in tests/$o(suite)"}

if {$o(list)} {
    foreach u $units {
        puts [lindex $u 0]
        foreach {- - quoted braced} \
            [regexp -all -inline -line {^\s*test\s+("([^"\n]*)"|\{([^\}\n]*)\})} [lindex $u 3]] {
            puts "    [expr {$quoted ne "" ? $quoted : $braced}]"
        }
    }
    exit 0
}

set default_server [file join $::root src valkey-server]
if {$o(server) eq ""} {set o(server) $default_server}
if {[string first / $o(server)] < 0 && [auto_execok $o(server)] ne ""} {
    set o(server) [lindex [auto_execok $o(server)] 0]
}
set o(server) [file normalize $o(server)]
if {![file executable $o(server)]} {bad "there is no server at $o(server): build it (make) or name one with --server"}
if {$o(ours) eq ""} {set o(ours) [string match $::root/* $o(server)]}
if {$o(seed) eq ""} {set o(seed) [expr {[clock microseconds] % 1000000}]}
if {$o(launcher) ne ""} {
    set first [lindex $o(launcher) 0]
    if {[file executable [file join $::root $first]]} {
        set o(launcher) [lreplace $o(launcher) 0 0 [file join $::root $first]]
    } elseif {[auto_execok $first] eq ""} {
        bad "cannot run $first"
    }
}
if {$o(junit) eq "" && [info exists ::env(TEST_REPORTS)] && $::env(TEST_REPORTS) ne ""} {
    set o(junit) [file join $::env(TEST_REPORTS) \
        $o(suite)[expr {$o(rdma) ? "-rdma" : $o(tls) ? "-tls" : ""}][expr {$o(slots) ? "-slots" : ""}].xml]
}
if {$o(junit) ne ""} {set o(junit) [file normalize $o(junit)]}
if {![info exists ::env(VALKEY_TEST_RUN)]} {bad "start it as ./runtest"}
set ::run $::env(VALKEY_TEST_RUN)
# For a server under AddressSanitizer: pointers in packed structures may be unaligned.
if {![info exists ::env(LSAN_OPTIONS)]} {set ::env(LSAN_OPTIONS) use_unaligned=1}
cd $::run
fconfigure stdout -buffering line -encoding utf-8

# --- Running ---------------------------------------------------------------

set ::queue {}
for {set loop 1} {$loop <= $o(loops)} {incr loop} {
    foreach u [lsort -integer -decreasing -index 2 $units] {
        set name [lindex $u 0]
        if {$o(loops) > 1} {append name "#$loop"}
        lappend ::queue [list $name [lindex $u 1] $loop 1]
    }
}
array set total {ok 0 fail 0 skip 0}
set ::failures {}
set ::skips {}
set ::again {}
set ::forgiven {}
set ::running 0
set ::finished 0
array set ::job {}
set ::job_n 0
set ::first_start [clock milliseconds]

proc start_next {} {
    global o
    if {$::running == 0 && ![llength $::queue] && [llength $::again]} {
        puts "\nOnce more, one after the other: [join [lmap q $::again {lindex $q 0}] {, }]"
        set ::queue $::again
        set ::again {}
        set o(clients) 1
    }
    while {$::running < $o(clients) && [llength $::queue]} {
        set q [lindex $::queue 0]
        set ::queue [lrange $::queue 1 end]
        lassign $q name file loop attempt
        set id [incr ::job_n]
        set dir [file join $::run u$id]
        file mkdir $dir
        set options [list suite $o(suite) server $o(server) ours $o(ours) rdma $o(rdma) tls $o(tls) \
            io_threads $o(io_threads) slots $o(slots) launcher $o(launcher) rdma_host $o(rdma_host) \
            valgrind $o(valgrind) \
            durable $o(durable) timeout $o(timeout) only $o(only) allow $o(allow) deny $o(deny) verbose $o(verbose) \
            seed [expr {$o(seed) + $loop - 1}]]
        set chan [open [list | [info nameofexecutable] [file join $::root tests harness worker.tcl] $::root $dir $file \
            $options 2>@1] r]
        fconfigure $chan -blocking 0 -buffering line -encoding utf-8
        array set ::job [list $id,name $name $id,file $file $id,dir $dir $id,chan $chan $id,test "" $id,line 0 \
            $id,until 0 \
            $id,loop $loop $id,attempt $attempt $id,cases "" \
            $id,began [clock milliseconds] $id,ended 0 $id,ok 0 $id,fail 0 $id,skip 0 $id,killed 0]
        fileevent $chan readable [list job_output $id]
        incr ::running
    }
    if {$::running == 0} {set ::finished 1}
}

proc relative {file} {regsub "^[regsub -all {[^\w]} $::root {\\&}]/" $file ""}

proc job_output {id} {
    set chan $::job($id,chan)
    while {[gets $chan line] >= 0} {
        if {[string index $line 0] eq "@"} {
            if {[catch {job_event $id [string map {%0A \n %0D \r %25 %} [string range $line 1 end]]} err]} {
                puts "runtest: $err in: $line"
            }
        } else {
            puts "$::job($id,name): $line"
        }
    }
    if {![eof $chan]} return
    fconfigure $chan -blocking 1
    catch {close $chan} result
    if {!$::job($id,ended)} {
        if {$::job($id,test) ne ""} {
            if {!$::job($id,killed)} {
                record_failure $id $::job($id,test) $::job($id,line) "the test process ended in the middle ($result)" ""
            }
        } else {
            record_failure $id "(suite)" 0 "the test process ended in the middle ($result)" ""
        }
    }
    kill_below $::job($id,dir)
    catch {file delete -force $::job($id,dir)}
    set took [format %.1f [expr {([clock milliseconds] - $::job($id,began)) / 1000.0}]]
    puts [format "%-24s %4d passed %4d failed %4d skipped  %6s s" $::job($id,name) $::job($id,ok) $::job($id,fail) \
        $::job($id,skip) $took]
    if {$::o(retry) && $::job($id,fail) && $::job($id,attempt) == 1} {try_again $id}
    append ::cases $::job($id,cases)
    incr ::running -1
    start_next
}

# Subtracts the results of a failed suite from the totals and schedules it to run once more.
proc try_again {id} {
    set mine [lsearch -all -inline -index 4 -exact $::failures $id]
    foreach f $mine {if {[regexp {the server died|Sanitizer|runtime error:} [lindex $f 3]]} return}
    foreach what {ok fail skip} {incr ::total($what) -$::job($id,$what)}
    set ::failures [lsearch -all -inline -not -index 4 -exact $::failures $id]
    set ::skips [lsearch -all -inline -not -index 3 -exact $::skips $id]
    set ::job($id,cases) ""
    lappend ::forgiven {*}$mine
    lappend ::again [list $::job($id,name) $::job($id,file) $::job($id,loop) 2]
}

# Results as JUnit.
set ::cases {}
proc xml {text} {
    regsub -all {[^\x09\x0A\x0D\x20-\uFFFD]} $text "" text
    return [string map {& &amp; < &lt; > &gt; \" &quot;} $text]
}
proc junit_case {id name body} {
    if {$::o(junit) eq ""} return
    append ::job($id,cases) "<testcase classname=\"[xml $::job($id,name)]\" name=\"[xml $name]\">$body</testcase>\n"
}
proc junit_write {} {
    global o total
    if {$o(junit) eq ""} return
    set ch [open $o(junit) w]
    fconfigure $ch -encoding utf-8
    puts $ch "<testsuite name=\"$o(suite)\" tests=\"[expr\
        {$total(ok) + $total(fail) + $total(skip)}]\" failures=\"$total(fail)\"\
        skipped=\"$total(skip)\">\n$::cases</testsuite>"
    close $ch
}

proc record_failure {id name line why tail} {
    junit_case $id $name "<failure>[xml $why]</failure>"
    incr ::job($id,fail)
    incr ::total(fail)
    set where "[relative $::job($id,file)][expr {$line ? ":$line" : ""}]"
    lappend ::failures [list $::job($id,name) $name $where $why $id]
    puts "\[failed] $::job($id,name): $name\n    $where: $why"
    if {$tail ne ""} {puts "      the log of the server meanwhile:\n[string trimright $tail \n]"}
}

proc job_event {id event} {
    set args [lassign $event what]
    switch -exact -- $what {
        begin {}
        start {
            lassign $args name line seconds
            set ::job($id,test) $name
            set ::job($id,line) $line
            # The worker ends a test that takes too long; this is for a worker that hangs.
            set ::job($id,until) [expr {[clock milliseconds] + 1000 * $seconds + 20000}]
        }
        ok {
            incr ::job($id,ok)
            incr ::total(ok)
            junit_case $id [lindex $args 0] ""
            set ::job($id,test) ""
            if {$::o(verbose)} {puts "\[ok] $::job($id,name): [lindex $args 0] ([lindex $args 1] ms)"}
        }
        fail {
            lassign $args name line why tail
            record_failure $id $name $line $why $tail
            set ::job($id,test) ""
        }
        skip {
            incr ::job($id,skip)
            incr ::total(skip)
            junit_case $id [lindex $args 0] "<skipped message=\"[xml [lindex $args 1]]\"/>"
            lappend ::skips [list $::job($id,name) [lindex $args 0] [lindex $args 1] $id]
            set ::job($id,test) ""
            if {$::o(verbose)} {puts "\[skipped] $::job($id,name): [lindex $args 0] ([lindex $args 1])"}
        }
        problem {record_failure $id "(suite)" 0 [lindex $args 0] ""}
        syntax {foreach pair $args {dict set ::syntax $pair 1}}
        sent {foreach pair $args {dict set ::sent $pair 1}}
        end {set ::job($id,ended) 1}
    }
}

proc kill_below {dir} {
    foreach try {1 2 3} {
        set pids {}
        foreach link [glob -nocomplain -directory /proc {[0-9]*}] {
            if {[catch {file readlink $link/cwd} cwd]} continue
            if {$cwd eq $dir || [string match "$dir/*" $cwd]} {lappend pids [file tail $link]}
        }
        if {$pids eq ""} return
        catch {exec kill -KILL {*}$pids}
        after 20
    }
}

proc watch {} {
    set now [clock milliseconds]
    foreach key [array names ::job *,test] {
        set id [lindex [split $key ,] 0]
        if {$::job($key) eq "" || $::job($id,ended) || $::job($id,killed) || $now < $::job($id,until)} continue
        set tail ""
        foreach log [lsort [glob -nocomplain -directory $::job($id,dir) s*/log s*/err]] {
            catch {
                append tail [exec tail -n 15 $log | sed "s/^/      | /"] \n
            }
        }
        record_failure $id $::job($id,test) $::job($id,line) \
            "stuck: no end long after its time was up; the rest of this suite did not run" $tail
        set ::job($id,killed) 1
        set ::job($id,test) ""
        kill_below $::job($id,dir)
    }
    after 1000 watch
}

# Each literal word in the syntax of a data command (reported by command-table) must have been sent with that command by
# some suite. Checked after runs of all suites.
set ::syntax {}
set ::sent {}
proc check_syntax_sent {} {
    global o
    if {$o(single) ne "" || $o(skipunit) ne "" || $o(only) ne "" || $o(allow) ne "" || $o(deny) ne "" || !$o(ours)} \
        return
    set missing {}
    foreach pair [dict keys $::syntax] {if {![dict exists $::sent $pair]} {lappend missing [string toupper $pair]}}
    if {$missing eq ""} return
    incr ::total(fail)
    set name "every word of every command's syntax is sent by a suite"
    set why "these are not: [join $missing ", "]"
    lappend ::failures [list (all) $name tests/$o(suite) $why]
    puts "\[failed] (all): $name\n    tests/$o(suite): $why"
}

puts "server [relative $o(server)][expr {$o(ours) ? "" : " (a genuine one)"}], transport [expr\
    {$o(rdma) ? "rdma" : $o(tls) ? "tls" : "tcp"}],\
    [llength $::queue] suites, seed $o(seed)"
after 1000 watch
start_next
if {!$::finished} {vwait ::finished}
check_syntax_sent
junit_write

# --- Summary ---------------------------------------------------------------

proc show_failures {title list} {
    if {![llength $list]} return
    puts $title
    foreach f $list {
        lassign $f unit name where why
        puts "  $where  $unit: $name: [lindex [split $why \n] 0]"
    }
    puts ""
}

puts ""
if {[llength $::skips]} {
    array set count {}
    foreach s $::skips {incr count([lindex $s 2])}
    puts "Skipped:"
    foreach reason [lsort [array names count]] {puts "  $count($reason) x $reason"}
    puts ""
}
show_failures "Failed at the first attempt; the suite ran once more:" $::forgiven
show_failures "Failed:" $::failures
puts [format "%.1f s" [expr {([clock milliseconds] - $::first_start) / 1000.0}]]
puts "$total(ok) passed, $total(fail) failed[expr {$total(skip) ? ", $total(skip) skipped" : ""}]"
exit [expr {$total(fail) || $total(ok) == 0}]
