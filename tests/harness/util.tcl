# Helpers: waiting, random data, processes, ports, tools.

# wait_for_condition ms {expr} ?message or {script}?: evaluates the condition in the caller's scope until it is true;
# after the timeout it runs the script or fails. A condition that reads a missing key or element is false.
proc wait_for_condition {ms condition {otherwise ""}} {
    set end [resp::deadline $ms]
    set pause 2
    while {1} {
        if {[catch {uplevel 1 [list expr $condition]} value options]} {
            if {![string match "TCL LOOKUP *" [dict get $options -errorcode]]} {return -options $options $value}
        } elseif {$value} return
        if {[clock milliseconds] >= $end} break
        after $pause
        if {$pause < 50} {incr pause $pause}
    }
    if {$otherwise ne ""} {
        if {[info commands ::[lindex $otherwise 0]] eq ""} {fail_assertion $otherwise} ;# a message, not a script
        uplevel 1 $otherwise
        return
    }
    set detail ""
    catch {set detail [uplevel 1 [list subst -nocommands $condition]]}
    fail_assertion "did not become true within $ms ms: $condition ([printable $detail])"
}

proc fail {message} {fail_assertion $message}

# RDMA_TEST_SCALE=N means that everything is about N times slower than usual (a device of the kernel in an emulated
# machine): counts are divided by N, timeouts are longer. Only counts that mean "many" are scaled, never the subject of
# a test.
set ::test_scale 1
if {[info exists ::env(RDMA_TEST_SCALE)] && [string is integer -strict $::env(RDMA_TEST_SCALE)] &&\
    $::env(RDMA_TEST_SCALE) > 1} {
    set ::test_scale $::env(RDMA_TEST_SCALE)
}
# All timeouts are multiplied by test_patience. A test on a busy machine gets its share of the CPUs only, so patience
# follows the number of processes that want a CPU. The worker looks at it when a test starts.
proc update_patience {} {
    set wanted 0
    catch {
        set load [file_bytes /proc/loadavg]
        regexp {^([\d.]+) .* (\d+)/\d+ } $load -> minute now
        set wanted [expr {max($minute, $now) / $::cpus}]
    }
    set ::test_patience [expr {($::test_scale > 1 ? 4 : 1) * max(1, min(8, int(ceil($wanted))))}]
}
set ::cpus 1
catch {set ::cpus [exec nproc]}
proc scaled {count {least 1}} {expr {min($count, max($least, $count / $::test_scale))}}
# The sizes in bytes that can be tested in reasonable time.
proc scaled_sizes {sizes} {
    if {$::test_scale < 10} {return $sizes}
    lmap size $sizes {if {$size > 2200000} continue; set size}
}

# Bytes in which a lost, repeated or moved part is noticed: they repeat only after 9,973 bytes, a prime number.
proc numbered {size {seed 0}} {
    if {![info exists ::numbered_block]} {
        for {set i 0} {$i < 1247} {incr i} {
            append ::numbered_block [format %08x [expr {$i * 2654435761 & 0xffffffff}]]
        }
        set ::numbered_block [string range $::numbered_block 0 9972]
    }
    set from [expr {$seed * 31 % 9973}]
    string range [string repeat $::numbered_block [expr {$size / 9973 + 2}]] $from [expr {$from + $size - 1}]
}

# Random bytes. Kinds: alpha, binary, compr (few different bytes).
proc randstring {min max {kind binary}} {
    set len [expr {$min + int(rand() * ($max - $min + 1))}]
    set out ""
    switch -exact -- $kind {
        binary {set lo 0; set hi 255}
        alpha {set lo 48; set hi 122}
        compr {set lo 48; set hi 52}
        default {error "randstring: unknown kind $kind"}
    }
    set n [expr {$hi - $lo + 1}]
    for {set i 0} {$i < $len} {incr i} {append out [format %c [expr {$lo + int(rand() * $n)}]]}
    return $out
}
proc randint {n} {expr {int(rand() * $n)}}
proc pick {args} {lindex $args [expr {int(rand() * [llength $args])}]}

proc file_bytes {path} {
    set f [open $path rb]
    set data [read $f]
    close $f
    return $data
}
proc write_file {path data} {
    set f [open $path wb]
    puts -nonewline $f $data
    close $f
}

# A free TCP port whose port + 10000 is also free (cluster bus). Both are below the range of outgoing connections, so
# that no client takes them before the server does.
proc free_port {} {
    if {![info exists ::port_cursor]} {set ::port_cursor [expr {([pid] * 37) % 10000}]}
    for {set i 0} {$i < 2000} {incr i} {
        set ::port_cursor [expr {($::port_cursor + 1) % 10000}]
        set port [expr {11500 + $::port_cursor}]
        set ok 1
        foreach p [list $port [expr {$port + 10000}]] {
            if {[catch {socket -server {} -myaddr 0.0.0.0 $p} s]} {
                set ok 0
                break
            }
            close $s
        }
        if {$ok} {return $port}
    }
    error "no free port found"
}

# --- Processes -------------------------------------------------------------

# R, S, Z ... or the empty string if the process does not exist.
proc process_state {pid} {
    if {[catch {set f [open /proc/$pid/stat]; set s [read $f]; close $f}]} {
        catch {close $f}
        return ""
    }
    regexp {\) (\w)} $s -> state
    return $state
}
proc process_alive {pid} {
    set s [process_state $pid]
    expr {$s ne "" && $s ne "Z" && $s ne "X"}
}

proc kill_process {signal pid} {
    if {$pid eq "" || $pid <= 1} {error "kill_process: no process id"}
    catch {exec kill -$signal $pid}
}

# Ids of the processes whose working directory is this directory or below it.
proc processes_below {dir} {
    set out {}
    foreach link [glob -nocomplain -directory /proc {[0-9]*}] {
        if {[catch {file readlink $link/cwd} cwd]} continue
        regsub { \(deleted\)$} $cwd "" cwd
        if {$cwd eq $dir || [string match "$dir/*" $cwd]} {
            set pid [file tail $link]
            if {$pid != [pid] && [process_alive $pid]} {lappend out $pid}
        }
    }
    return $out
}

# Starts a process with all three channels on files. The caller can wait for its end and gets its status by closing the
# result. (Tcl keeps one end of a pipeline, so a shell redirects and then executes the command.)
proc open_process {cmd in out err how} {
    open [list | /bin/sh -c "exec \"\$@\" <'$in' $how'$out' 2$how'$err'" sh {*}$cmd] r
}

# spawn ?-in dir? ?-stdin text? command... : starts a process with its output in files. Returns a handle for the procs
# below; the output files are removed with the run.
proc spawn {args} {
    set dir [pwd]
    set in /dev/null
    while {1} {
        switch -exact -- [lindex $args 0] {
            -in {set dir [lindex $args 1]; set args [lrange $args 2 end]}
            -stdin {
                set in [file join $::unit_dir stdin.[incr ::spawn_n]]
                write_file $in [lindex $args 1]
                set args [lrange $args 2 end]
            }
            default break
        }
    }
    set id [incr ::spawn_n]
    set out [file join $::unit_dir out.$id]
    set err [file join $::unit_dir err.$id]
    write_file $out ""
    write_file $err ""
    set here [pwd]
    cd $dir
    set failed [catch {open_process $args $in $out $err >} chan]
    cd $here
    if {$failed} {error "could not start [lindex $args 0]: $chan"}
    set ::spawned($id) [dict create chan $chan pid [lindex [pid $chan] end] out $out err $err]
    return $id
}
proc spawn_pid {id} {dict get $::spawned($id) pid}
proc spawn_out {id} {file_bytes [dict get $::spawned($id) out]}
proc spawn_err {id} {file_bytes [dict get $::spawned($id) err]}

# Waits for its end: {code N out TEXT err TEXT}; code is the name of the signal that killed it, if any.
proc spawn_wait {id {ms 10000}} {
    set s $::spawned($id)
    set pid [dict get $s pid]
    set end [resp::deadline $ms]
    set pause 1
    while {[process_alive $pid]} {
        if {[clock milliseconds] > $end} {
            kill_process KILL $pid
            catch {close [dict get $s chan]}
            unset ::spawned($id)
            error "process $pid did not end within $ms ms; it wrote: [printable\
                [file_bytes [dict get $s out]][file_bytes [dict get $s err]] 1000]"
        }
        after $pause
        if {$pause < 20} {incr pause $pause}
    }
    set code 0
    if {[catch {close [dict get $s chan]} e opts]} {
        set ec [dict get $opts -errorcode]
        switch -exact -- [lindex $ec 0] {
            CHILDSTATUS {set code [lindex $ec 2]}
            CHILDKILLED {set code [lindex $ec 2]}
        }
    }
    unset ::spawned($id)
    set err [file_bytes [dict get $s err]]
    if {[regexp -line {^.*(ERROR: \w+Sanitizer|runtime error:).*$} $err report]} {
        error "process $pid: $report\n[string range $err 0 3000]" {} SANITIZER
    }
    return [dict create code $code out [file_bytes [dict get $s out]] err $err]
}
# The programs are built with AddressSanitizer or ThreadSanitizer.
proc has_sanitizer {} {expr {![catch {exec ldd $::opt(server)} libraries] && [regexp {lib[at]san} $libraries]}}
# Runs a command until it exits, like exec, but does not raise an error if the command fails.
proc run {args} {
    set ms 20000
    if {[lindex $args 0] eq "-timeout"} {
        set ms [expr {1000 * [lindex $args 1]}]
        set args [lrange $args 2 end]
    }
    spawn_wait [spawn {*}$args] $ms
}

# A program of this project, or the installed one with that name, or the empty string.
proc tool {name} {
    foreach p [list $::root/src/$name $::root/build/programs/$name] {
        if {[file executable $p]} {return $p}
    }
    set p [auto_execok $name]
    if {$p ne ""} {return [lindex $p 0]}
    return ""
}

# Peak or current memory of a process in KiB, as the kernel counts it.
proc process_memory {pid {what VmRSS}} {
    set f [open /proc/$pid/status]
    set s [read $f]
    close $f
    if {![regexp "$what:\\s+(\\d+)" $s -> kb]} {error "no $what of $pid"}
    return $kb
}

# Runs a script in another directory.
proc run_in_dir {dir script} {
    set here [pwd]
    cd $dir
    set code [catch {uplevel 1 $script} result opts]
    cd $here
    return -options $opts $result
}

# An address of this machine that is not on the loopback interface; "": there is none.
proc outer_address {} {
    if {![catch {exec hostname -I} list]} {
        foreach a $list {if {[string match *.*.*.* $a]} {return $a}}
    }
    return ""
}

# The bytes that a connection from such an address receives in protected mode.
proc protected_mode_refusal {} {
    return [join {
        {-DENIED Running in protected mode because protected mode is enabled and no password is set for the default}
        {user. In this mode connections are only accepted from the loopback interface. If you want to connect from}
        {external computers, you may adopt one of the following solutions: 1) Just disable protected mode sending the}
        {command 'CONFIG SET protected-mode no' from the loopback interface by connecting from the same host the}
        {server is running, however MAKE SURE it's not publicly accessible from internet if you do so. Use CONFIG}
        {REWRITE to make this change permanent. 2) Alternatively you can just disable the protected mode by editing}
        {the configuration file, and setting the protected mode option to 'no', and then restarting the server. 3) If}
        {you started the server manually just for testing, restart it with the '--protected-mode no' option. 4) Set}
        {up an authentication password for the default user. NOTE: You only need to do one of the above things in}
        {order for the server to start accepting connections from the outside.}
    }]\r\n
}

# Waits until the server has this number of blocked clients.
proc wait_blocked {count} {
    wait_for_condition 5000 {[info_field clients blocked_clients] == $count} \
        {fail "[info_field clients blocked_clients] clients wait, not $count"}
}
# A new client, which this command has blocked. No other client may be blocked.
proc blocked_by {args} {
    set c [new_client]
    $c -send {*}$args
    wait_blocked 1
    return $c
}
