# Startup: the configuration file, the command line, standard input, the log, pid file, daemon, signals, exit codes.
# seconds: 4

# The message with which the server rejects a line of its configuration.
proc fatal {line text why} {
    return "\\*\\*\\* FATAL CONFIG FILE ERROR (Version *) \\*\\*\\*\nReading the configuration file, at line\
        $line\n>>> '$text'\n$why\n"
}
proc conf {text} {
    set f [file join $::unit_dir c[incr ::conf_n].conf]
    write_file $f $text
    return $f
}

# --- The configuration file ------------------------------------------------------

test "a misspelt option is refused with the name that was probably meant" {
    set bad "Bad directive or wrong number of arguments"
    refuses_to_start [fatal 1 "maxmemroy 1" "$bad\nDid you mean 'maxmemory'?"] [conf "maxmemroy 1\n"]
    refuses_to_start "'appendonyl \"yes\"'\n$bad\nDid you mean 'appendonly'?" --appendonyl yes
}

test "a line with an unknown option is refused, with its number" {
    refuses_to_start [fatal 2 "nosuch foo" "Bad directive or wrong number of arguments"] \
        [conf "port 18001\nnosuch foo\n"]
    refuses_to_start [fatal 5 "nosuch" "Bad directive or wrong number of arguments"] \
        [conf "# one\n\nport 18001\n   # four\nnosuch\n"]
}

test "options that would cost data or safety without their feature are refused" -needs {ours 1} {
    foreach {line why} {
        {loadmodule valkey-rdma.so port} {Arguments of valkey-rdma.so are NAME=VALUE}
        {loadmodule valkey-rdma.so =1} {Arguments of valkey-rdma.so are NAME=VALUE}
        {loadmodule valkey-rdma.so nosuch=1} {There is no option rdma-nosuch}
        {loadmodule valkey-rdma.so port=x} {*argument couldn't be parsed into an integer}
    } {
        refuses_to_start [fatal 1 $line $why] [conf "$line\n"]
    }
}

test "bad values are refused with the reason" {
    foreach {line why} {
        {port abc} {argument couldn't be parsed into an integer}
        {port 65536} {argument must be between 0 and 65535 inclusive}
        {maxclients 0} {argument must be between 1 and 4294967295 inclusive}
        {maxmemory 10zz} {argument must be a memory value}
        {daemonize maybe} {argument must be 'yes' or 'no'}
        {maxmemory-policy foo} {argument(s) must be one of the following: volatile-lru, volatile-lfu, volatile-random,\
            volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, noeviction}
        {save 1} {Invalid save parameters}
        {save a b} {Invalid save parameters}
        {save 0 1} {Invalid save parameters}
        {dir /nosuch} {No such file or directory}
        {dbfilename a/b} {dbfilename can't be a path, just a filename}
        {databases 0} {argument must be between 1 and 2147483647 inclusive}
        {client-output-buffer-limit foo 0 0 0} {Invalid client class specified in buffer limit configuration.}
        {client-output-buffer-limit normal 0 0} {Wrong number of arguments in buffer limit configuration.}
        {notify-keyspace-events foo} {Invalid event class character. Use 'Ag$lshzxeKEtmdn'.}
        {rename-command foo bar} {No such command in rename-command}
    } {
        refuses_to_start [fatal 1 $line $why] [conf "$line\n"]
    }
}

test "too many or too few arguments of an option are refused" {
    refuses_to_start [fatal 1 "maxclients 1 2" "wrong number of arguments"] [conf "maxclients 1 2\n"]
    refuses_to_start [fatal 1 "maxclients" "wrong number of arguments"] [conf "maxclients\n"]
}

test "unbalanced quotes are refused" {
    refuses_to_start [fatal 2 {requirepass "abc} "Unbalanced quotes in configuration line"] \
        [conf "port 18001\nrequirepass \"abc\n"]
    refuses_to_start [fatal 1 {requirepass a"b} "Unbalanced quotes in configuration line"] \
        [conf "requirepass a\"b\n"]
}

test "a file that is not there is refused" {
    set got [run_server /nosuch.conf]
    assert_equal 1 [dict get $got code]
    assert_match "*Fatal error, can't open config file '/nosuch.conf': No such file or directory*" \
        [dict get $got out][dict get $got err]
    set got [run_server [conf "include /nosuch.conf\n"]]
    assert_equal 1 [dict get $got code]
    assert_match "*Fatal error, can't open config file '/nosuch.conf': No such file or directory*" \
        [dict get $got out][dict get $got err]
}

proc conf_on {port text} {conf [string map [list PORT $port DIR $::unit_dir] $text]}

test "comments, empty lines, blanks, quotes and letter case in the file" {
    set port [free_port]
    serve -port $port -- [conf_on $port "
# a comment
   # another, indented
\t
   PoRt PORT  \r
bind 127.0.0.1
MaxClients   \t 123
requirepass \"a \\\"b\\\" \\x41\\n\"
primaryuser 'single \\'quoted\\' \\n'
save \"\"
dir DIR
#maxclients 5
"]
    set c [new_client -port $port]
    assert_error_like NOAUTH* {$c ping}
    $c auth "a \"b\" A\n"
    assert_equal 123 [lindex [$c config get maxclients] 1]
    assert_equal "single 'quoted' \\n" [lindex [$c config get primaryuser] 1]
    assert_equal "" [lindex [$c config get save] 1]
}

test "the last of several lines of one option wins; save and client-output-buffer-limit gather" {
    set port [free_port]
    serve -port $port -- [conf_on $port \
        "port 1\nport PORT\nbind 127.0.0.1\nmaxclients 5\nmaxclients 77\nsave 100 1\nsave 200 2 300 3
client-output-buffer-limit normal 1 2 3\nclient-output-buffer-limit pubsub 4 5 6\ndir DIR\n"]
    set c [new_client -port $port]
    assert_equal 77 [lindex [$c config get maxclients] 1]
    assert_equal "100 1 200 2 300 3" [lindex [$c config get save] 1]
    assert_equal "normal 1 2 3 slave 268435456 67108864 60 pubsub 4 5 6" \
        [lindex [$c config get client-output-buffer-limit] 1]
    $c config set save ""
}

test "save \"\" drops what was gathered before" {
    set port [free_port]
    serve -port $port -- [conf_on $port "port PORT\nbind 127.0.0.1\nsave 100 1\nsave \"\"\ndir DIR\n"]
    assert_equal "" [lindex [[new_client -port $port] config get save] 1]
}

test "include reads other files, also by pattern, at its position" {
    set port [free_port]
    set dir [file join $::unit_dir inc[incr ::conf_n]]
    file mkdir $dir
    write_file $dir/1.conf "maxclients 11\ntimeout 22\n"
    write_file $dir/2.conf "tcp-keepalive 33\n"
    serve -port $port -- [conf_on $port \
        "maxclients 5\ninclude $dir/*.conf\ntimeout 44\nport PORT\nbind 127.0.0.1\nsave \"\"\ndir DIR\n"]
    set c [new_client -port $port]
    assert_equal 11 [lindex [$c config get maxclients] 1]
    assert_equal 44 [lindex [$c config get timeout] 1]
    assert_equal 33 [lindex [$c config get tcp-keepalive] 1]
}

test "the message about an invalid line of an included file names the file" -needs {ours 1} {
    set bad [conf "\nprot 1\n"]
    set middle [conf "include $bad\n"]
    refuses_to_start [fatal 2 "prot 1" "*\nThe line is in the included file '$bad'"] [conf "include $middle\n"]
    assert_equal 0 [string match "*included file*" [dict get [run_server $bad] err]]
}

test "a pattern of include that matches nothing is no error" {
    set port [free_port]
    serve -port $port -- [conf_on $port \
        "include $::unit_dir/nosuch*.conf\nport PORT\nbind 127.0.0.1\nsave \"\"\ndir DIR\n"]
    assert_equal PONG [[new_client -port $port] ping]
}

test "options that are no longer in use are accepted" {
    set port [free_port]
    serve -port $port -- [conf_on $port \
        "port PORT\nbind 127.0.0.1\nlist-max-ziplist-entries 512\nlist-max-ziplist-value 64\nlua-replicate-commands\
        yes\nio-threads-do-reads 7\nevents-per-io-thread x\ndynamic-hz 9\nsave \"\"\ndir DIR\n"]
    set c [new_client -port $port]
    foreach name {io-threads-do-reads events-per-io-thread dynamic-hz} {
        assert_equal {} [$c config get $name]
        assert_error "ERR Unknown option or number of arguments for CONFIG SET - '$name'" {$c config set $name yes}
    }
    refuses_to_start "'dynamic-hz \"1\" \"2\"'\nBad directive or wrong number of arguments" --dynamic-hz 1 2
}

test "the working directory is that of the option dir" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --dir DIR --save ""] handle port dir
    set c [new_client -port $port]
    assert_equal $dir [lindex [$c config get dir] 1]
    assert_equal $dir [file readlink /proc/[spawn_pid $handle]/cwd]
}

# --- The command line ---------------------------------------------------------------

test "options on the command line" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --maxclients 321 --save "" --requirepass "x y" --dir DIR] handle port
    set c [new_client -port $port]
    $c auth "x y"
    assert_equal 321 [lindex [$c config get maxclients] 1]
    assert_equal "" [lindex [$c config get save] 1]
}

test "options of several arguments on the command line, together and apart" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --save 100 1 200 2 --client-output-buffer-limit normal 1 2 3 \
        --dir DIR] handle port
    set c [new_client -port $port]
    assert_equal "100 1 200 2" [lindex [$c config get save] 1]
    assert_match "normal 1 2 3 *" [lindex [$c config get client-output-buffer-limit] 1]
    $c config set save ""
    lassign [serve -- --port PORT --bind 127.0.0.1 --save "100 1" --save "300 3" --dir DIR] handle port
    set c [new_client -port $port]
    assert_equal "100 1 300 3" [lindex [$c config get save] 1]
    $c config set save ""
}

test "the command line overrides the file" {
    set f [conf "maxclients 5\ntimeout 17\nsave \"\"\nbind 127.0.0.1\n"]
    lassign [serve -- $f --maxclients 6 --port PORT --dir DIR] handle port
    set c [new_client -port $port]
    assert_equal 6 [lindex [$c config get maxclients] 1]
    assert_equal 17 [lindex [$c config get timeout] 1]
    assert_equal $f [dict get [info_dict [$c info server]] config_file]
}

test "standard input overrides the file, and the command line overrides standard input" {
    set f [conf "maxclients 5\ntimeout 17\nsave \"\"\nbind 127.0.0.1\n"]
    lassign [serve -stdin "maxclients 6\ntimeout 18\nport PORT\n" -- $f --timeout 19 --dir DIR -] handle port
    set c [new_client -port $port]
    assert_equal 6 [lindex [$c config get maxclients] 1]
    assert_equal [spawn_out $handle] [spawn_out $handle]
    assert_in [lindex [$c config get timeout] 1] {18 19}
}

test "standard input instead of the file" {
    lassign [serve -stdin "maxclients 6\ntimeout 18\nport PORT\nsave \"\"\n" -- - --maxclients 7 --dir DIR] handle port
    set c [new_client -port $port]
    assert_equal {7 18} [list [lindex [$c config get maxclients] 1] [lindex [$c config get timeout] 1]]
    assert_equal "" [dict get [info_dict [$c info server]] config_file]
}

test "supervised is shown as configured where no supervisor is found" {
    foreach kind {systemd upstart auto} {
        lassign [serve -- --port PORT --bind 127.0.0.1 --save "" --dir DIR --supervised $kind] handle port
        set c [new_client -port $port]
        assert_equal [list supervised $kind] [$c config get supervised]
        assert_equal no [dict get [info_dict [$c info server]] process_supervised] $kind
    }
}

test "rdma-port and rdma-bind have an effect only together, and the log says so" {
    set got [run_server --rdma-bind 192.0.2.1 --port 99999]
    if {[string match "*built without RDMA*" [dict get $got err]]} {skip_test "built without RDMA"}
    set port [free_port]
    foreach {option value other} [list rdma-port $port rdma-bind rdma-bind 192.0.2.1 rdma-port] {
        lassign [serve -- --port PORT --bind 127.0.0.1 --save "" --dir DIR --logfile my.log \
            --$option $value] handle at dir
        assert_equal PONG [[new_client -port $at] ping]
        wait_for_text $dir/my.log "WARNING: $option "
        wait_for_text $dir/my.log "RDMA is not listening: set $other"
    }
}

test "an option and its value in one argument" {
    lassign [serve -- --port PORT "--maxclients 17" --bind 127.0.0.1 --save "" --dir DIR] handle port
    assert_equal 17 [lindex [[new_client -port $port] config get maxclients] 1]
}

test "standard input alone" {
    lassign [serve -stdin "port PORT\nbind 127.0.0.1\nsave \"\"\ndir DIR\nmaxclients 99\n" -- -] handle port
    set c [new_client -port $port]
    assert_equal 99 [lindex [$c config get maxclients] 1]
    assert_equal "" [dict get [info_dict [$c info server]] config_file]
    assert_error "ERR The server is running without a config file" {$c config rewrite}
}

test "bad options on the command line are refused" {
    refuses_to_start "'nosuch \"1\"'\nBad directive or wrong number of arguments" --nosuch 1
    refuses_to_start "'port \"abc\"'\nargument couldn't be parsed into an integer" --port abc
    refuses_to_start "'maxclients'\nwrong number of arguments" --maxclients
    refuses_to_start "FATAL CONFIG FILE ERROR" --port 18001 --maxclients --timeout 5
    refuses_to_start "FATAL CONFIG FILE ERROR" --maxclients 1 2
}

test "a bad line on standard input is refused" {
    set got [spawn_wait [spawn -stdin "port 99999\n" {*}[server_command] -]]
    assert_equal 1 [dict get $got code]
    assert_match "*>>> 'port 99999'\nargument must be between 0 and 65535 inclusive*" [dict get $got err]
}

test "--test-memory tests the megabytes that it is given" {
    set got [run {*}[server_command] --test-memory]
    assert_equal 1 [dict get $got code]
    assert_match "Please specify the amount of memory to test in megabytes.\nExample: *valkey-server\
        --test-memory 4096\n" [dict get $got err]
}

test "--test-memory shows its passes, and refuses what is no size" -needs {ours 1} {
    set got [run {*}[server_command] --test-memory 2 3]
    assert_equal 0 [dict get $got code]
    assert_match "Pass 1 of 3: 0 errors\nPass 2 of 3: 0 errors\nPass 3 of 3: 0 errors\n\nYour memory passed this\
        test.\n*" [dict get $got out]
    foreach arguments {0 -1 x 1x 9223372036854775807 {2 0} {2 x}} {
        set got [run {*}[server_command] --test-memory {*}$arguments]
        assert_equal 1 [dict get $got code] $arguments
        assert_match "--test-memory takes the megabytes to test, 1 to * on this machine, and the number of passes,*" \
            [dict get $got err] $arguments
    }
}

test "valkey-check-aof explains its options, and takes no option for a file" -needs {ours 1} {
    foreach option {-h --help} {
        set got [run [tool valkey-check-aof] $option]
        assert_equal 0 [dict get $got code]
        assert_match "Usage: *--fix*--truncate-to-timestamp*<file.manifest|file.aof>*exit status*" [dict get $got out]
    }
    set got [run [tool valkey-check-aof] --nosuch]
    assert_equal 1 [dict get $got code]
    assert_match "Usage: *<file.manifest|file.aof>\n" [dict get $got out]
}

test "--version shows the version and exits" {
    foreach option {--version -v} {
        set got [run_server $option]
        assert_equal 0 [dict get $got code]
        assert_regexp {^Valkey server v=\d+\.\d+\.\d+\S* sha=[0-9a-f]+:\d malloc=\S+ bits=64 build=[0-9a-f]+\n$} \
            [dict get $got out]
    }
}

test "--help shows the usage" {
    foreach option {--help -h} {
        set got [run_server $option]
        assert_in [dict get $got code] {0 1}
        set text [dict get $got out][dict get $got err]
        assert_match "Usage: *valkey-server*" $text
        foreach word {--version --port --loglevel} {assert {[string first $word $text] >= 0} $word}
    }
}

# --- The log ---------------------------------------------------------------------------

test "the log says when the server has started and listens" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --save "" --dir DIR] handle port
    set out [spawn_outfile $handle]
    wait_for_text $out "Ready to accept connections tcp"
    set text [file_bytes $out]
    set pid [spawn_pid $handle]
    assert_match "*$pid:M * Valkey is starting *" $text
    assert_match "* Valkey version=*, bits=64, commit=*, modified=*, pid=$pid, just started\n*" $text
    assert_match "*$pid:M * Server initialized\n*" $text
    assert_match "* monotonic clock: *\n*Running mode=*" $text
    assert_match "* Running mode=standalone, port=$port.\n*" $text
    assert {[string first "Server initialized" $text] < [string first "Ready to accept connections tcp" $text]}
    foreach l [split [string trimright $text \n] \n] {
        assert_regexp "^$pid:\[CMXS] \\d\\d \\w\\w\\w \\d\\d\\d\\d \\d\\d:\\d\\d:\\d\\d\\.\\d\\d\\d \[.*#-] " $l
    }
}

test "always-show-logo shows port and process id" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --save "" --dir DIR --always-show-logo yes] handle port
    set out [spawn_outfile $handle]
    wait_for_text $out "Ready to accept connections tcp"
    set text [file_bytes $out]
    assert_regexp "Port: $port\\s" $text
    assert_regexp "PID: [spawn_pid $handle]\\s" $text
}

test "the log of a server that starts as a replica shows its role from the first line" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --save "" --dir DIR --replicaof 127.0.0.1 1] handle port
    set out [spawn_outfile $handle]
    wait_for_text $out "Ready to accept connections tcp"
    assert_match "*[spawn_pid $handle]:S * Valkey is starting *" [file_bytes $out]
}

test "logfile takes the log, nothing is written to standard output" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --save "" --dir DIR --logfile my.log] handle port dir
    wait_for_text $dir/my.log "Ready to accept connections tcp"
    assert_equal "" [spawn_out $handle]
    # The log is opened for every line, so a file that was moved away is created again.
    set c [new_client -port $port]
    file rename $dir/my.log $dir/old.log
    $c config set loglevel debug
    new_client -port $port
    wait_for_condition 5000 {[file exists $dir/my.log]}
}

test "a logfile that cannot be written is refused" {
    set got [run_server --port 18001 --logfile /nosuch/log]
    assert_equal 1 [dict get $got code]
    assert_match "*Can't open the log file: No such file or directory*" [dict get $got err][dict get $got out]
    if {[server_is_ours]} {assert_match "* (/nosuch/log)\n*" [dict get $got err]}
}

test "a port in use: one line says so, exit code 1" {
    set blocker [socket -server {} -myaddr 127.0.0.1 0]
    set port [lindex [fconfigure $blocker -sockname] 2]
    at_test_end [list close $blocker]
    set got [run_server --port $port --bind 127.0.0.1 --save "" --dir $::unit_dir]
    assert_equal 1 [dict get $got code]
    set text [dict get $got out]
    assert_match "*Warning: Could not create server TCP listening socket 127.0.0.1:$port: bind: Address already\
        in use*" $text
    assert_match "*Failed listening on port $port (tcp), aborting.*" $text
}

test "a server that would listen nowhere ends" {
    set got [run_server --port 0 --save "" --dir $::unit_dir]
    assert_equal 1 [dict get $got code]
    assert_match "*Configured to not listen anywhere, exiting.*" [dict get $got out]
}

test "loglevel on start-up" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --save "" --dir DIR --loglevel warning] handle port
    assert {[string first "Ready to accept" [spawn_out $handle]] < 0}
}

# --- Pid file, daemon -------------------------------------------------------------------

test "pidfile is written and removed again" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --save "" --dir DIR --pidfile DIR/my.pid] handle port dir
    wait_for_condition 5000 {[file exists $dir/my.pid] && [file size $dir/my.pid] > 0}
    assert_equal "[spawn_pid $handle]\n" [file_bytes $dir/my.pid]
    kill_process TERM [spawn_pid $handle]
    assert_equal 0 [dict get [spawn_wait $handle] code]
    assert {![file exists $dir/my.pid]}
}

test "no pid file without daemonize or pidfile" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --save "" --dir DIR] handle port dir
    assert_equal "" [lindex [[new_client -port $port] config get pidfile] 1]
    assert_equal {} [glob -nocomplain $dir/*.pid]
}

test "daemonize yes: the command ends, the server continues" -tags {tcp-only} {
    set port [free_port]
    set dir [file join $::unit_dir daemon]
    file mkdir $dir
    set got [run_server --port $port --bind 127.0.0.1 --save "" --dir $dir --daemonize yes --pidfile $dir/d.pid \
        --logfile $dir/d.log]
    assert_equal 0 [dict get $got code]
    assert_equal "" [dict get $got out][dict get $got err]
    wait_for_condition 5000 {[file exists $dir/d.pid] && [file size $dir/d.pid] > 1}
    set pid [string trim [file_bytes $dir/d.pid]]
    at_test_end [list kill_process KILL $pid]
    wait_for_text $dir/d.log "Ready to accept connections tcp"
    set c [new_client -port $port]
    assert_equal PONG [$c ping]
    assert_equal $pid [dict get [info_dict [$c info server]] process_id]
    # The daemon has left our session and has no terminal.
    assert_equal $pid [lindex [split [file_bytes /proc/$pid/stat]] 5]
    catch {$c shutdown nosave}
    wait_for_condition 5000 {![process_alive $pid]}
    assert {![file exists $dir/d.pid]}
    assert_match "*Removing the pid file.*" [file_bytes $dir/d.log]
}

# --- Signals ----------------------------------------------------------------------------

foreach signal {TERM INT} {
    test "SIG$signal ends the server in order" {
        lassign [serve -- --port PORT --bind 127.0.0.1 --save "" --dir DIR] handle port dir
        set c [new_client -port $port]
        $c set a b
        set out [spawn_outfile $handle]
        kill_process $signal [spawn_pid $handle]
        set got [spawn_wait $handle]
        assert_equal 0 [dict get $got code]
        set text [file_bytes $out]
        assert_match "*Received SIG$signal scheduling shutdown...\n*" $text
        assert_match "*User requested shutdown...*" $text
        assert_match "*Valkey is now ready to exit, bye bye...\n" $text
        assert_closed $c
        assert {![file exists $dir/dump.rdb]}
    }
}

test "SIGHUP and SIGPIPE are ignored" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --save "" --dir DIR] handle port
    set c [new_client -port $port]
    kill_process HUP [spawn_pid $handle]
    kill_process PIPE [spawn_pid $handle]
    for {set i 0} {$i < 20} {incr i} {assert_equal PONG [$c ping]}
}

test "SIGTERM ends a server with many connected clients" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --save "" --dir DIR] handle port
    set clients {}
    for {set i 0} {$i < 100} {incr i} {lappend clients [new_client -port $port]}
    foreach c $clients {$c ping}
    kill_process TERM [spawn_pid $handle]
    assert_equal 0 [dict get [spawn_wait $handle] code]
    foreach c $clients {assert_closed $c}
}

test "the process title shows address and port" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --save "" --dir DIR] handle port
    if {$::opt(launcher) ne "" || $::opt(valgrind)} {skip_test "the server is started through another program"}
    wait_for_condition 3000 {[string match "*valkey-server 127.0.0.1:$port*"\
        [file_bytes /proc/[spawn_pid $handle]/cmdline]]}
    set c [new_client -port $port]
    $c config set proc-title-template "mine {port} {server-mode} {listen-addr}"
    assert_match "mine $port  127.0.0.1:$port*" [file_bytes /proc/[spawn_pid $handle]/cmdline]
    assert_error_like "*template format is invalid or contains unknown variables*" \
        {$c config set proc-title-template "{foo}"}
}
