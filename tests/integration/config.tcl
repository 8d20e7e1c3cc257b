# CONFIG at run time. startup.tcl tests the file and the command line. seconds: 4

start_server {tags {config}} {
    # --- CONFIG GET -----------------------------------------------------------------

    test "CONFIG GET of one option, several, patterns" {
        replies {
            {config get maxclients} {* $maxclients $10000}
            {config get nosuch} *
            {config get a b c} *
            {config get MAXCLIENTS} {* $MAXCLIENTS $10000}
            {config get tcp-keepalive*} {* $tcp-keepalive $300}
            {config get TCP-keep*} {* $tcp-keepalive $300}
        }
        assert_same_elements {maxclients 10000 timeout 0} [r config get maxclients timeout]
        assert_same_elements {maxclients 10000 tcp-backlog 511} [r config get maxclients tcp-backlo?]
        assert_same_elements {maxclients 10000} [r config get maxclients maxclients maxclient*]
        assert_in maxclients [dict keys [r config get *]]
        assert_reply [new_client -resp 3] {% $maxclients $10000} config get maxclients
        assert_reply [new_client -resp 3] % config get nosuch
    }

    test "CONFIG GET * gives every option once" {
        set names [dict keys [r config get *]]
        assert_range [llength $names] 150 400
        assert_equal [llength $names] [llength [lsort -unique $names]]
        assert_equal [expr {2 * [llength $names]}] [llength [r config get *]]
    }

    test "hidden options are found by their name only" -needs {config key-load-delay} {
        assert_typed {* $key-load-delay $0} config get key-load-delay
        assert_typed * config get key-load-dela?
        assert {"key-load-delay" ni [dict keys [r config get *]]}
    }

    # --- CONFIG SET -----------------------------------------------------------------

    test "CONFIG SET of one and several options" {
        assert_typed +OK config set timeout 100
        assert_equal 100 [config_get timeout]
        assert_typed +OK config set timeout 0 maxclients 5000 maxmemory-policy allkeys-lru
        assert_equal {timeout 0} [r config get timeout]
        assert_equal 5000 [config_get maxclients]
        assert_equal allkeys-lru [config_get maxmemory-policy]
        assert_typed +OK CONFIG SET MAXCLIENTS 10000 MaxMemory-Policy NoEviction
        assert_equal noeviction [config_get maxmemory-policy]
    }

    test "CONFIG SET of several options sets all or none" {
        r config set timeout 7 maxclients 9000
        replies {
            {config set timeout 8 maxclients x}\
                "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument couldn't be parsed\
                into an integer"
            {config set maxclients 8000 timeout x}\
                "-ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed\
                into an integer"
            {config set timeout 8 nosuch 1} "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'"
            {config set timeout 8 databases 3}\
                "-ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config"
            {config set timeout 8 timeout 9}\
                "-ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter"
            {config set timeout 8 maxclients} "-ERR syntax error"
        }
        assert_equal 7 [config_get timeout]
        assert_equal 9000 [config_get maxclients]
        r config set timeout 0 maxclients 10000
    }

    test "CONFIG SET rolls back what it had applied when a later option cannot be applied" -tags {tcp-only} {
        # The port is taken, so applying the last option fails after the others were applied.
        set blocker [socket -server {} -myaddr 127.0.0.1 0]
        set taken [lindex [fconfigure $blocker -sockname] 2]
        set port [srv port]
        assert_error_like "ERR CONFIG SET failed (possibly related to argument 'port')\
            - Unable to listen on this port*" {
            r config set maxclients 4321 timeout 55 port $taken
        }
        close $blocker
        assert_equal 10000 [config_get maxclients]
        assert_equal 0 [config_get timeout]
        assert_equal $port [config_get port]
        assert_equal PONG [[new_client] ping]
    }

    test "integers are checked" {
        replies {
            {config set maxclients 0}\
                "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument must be between 1 and\
                4294967295 inclusive"
            {config set maxclients 4294967296}\
                "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument must be between 1 and\
                4294967295 inclusive"
            {config set maxclients ""}\
                "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument couldn't be parsed\
                into an integer"
            {config set maxclients 1.5}\
                "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument couldn't be parsed\
                into an integer"
            {config set maxclients 100x}\
                "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument couldn't be parsed\
                into an integer"
            {config set tcp-keepalive -1}\
                "-ERR CONFIG SET failed (possibly related to argument 'tcp-keepalive') - argument must be between 0\
                and 2147483647 inclusive"
            {config set timeout 9223372036854775808}\
                "-ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed\
                into an integer"
            {config set port 0x10} "-ERR CONFIG SET failed (possibly related to argument 'port')\
                - argument couldn't be parsed into an integer"
            {config set port 65536} "-ERR CONFIG SET failed (possibly related to argument 'port')\
                - argument must be between 0 and 65535 inclusive"
            {config set active-expire-effort 11}\
                "-ERR CONFIG SET failed (possibly related to argument 'active-expire-effort')\
                - argument must be between 1 and 10 inclusive"
        }
    }

    test "hz is kept within 1 and 500" {
        replies {
            {config set hz 1000} +OK
            {config get hz} {* $hz $500}
            {config set hz 0} +OK
            {config get hz} {* $hz $1}
            {config set hz 10} +OK
        }
    }

    test "memory sizes take units" {
        foreach {text bytes} {
            1 1  100b 100  1k 1000  1kb 1024  1m 1000000  1mb 1048576  1g 1000000000  1gb 1073741824  1KB 1024  1Gb\
                1073741824  0 0
        } {
            assert_typed +OK config set maxmemory $text
            assert_equal $bytes [config_get maxmemory] $text
        }
        foreach bad {x 1x 1tb 1.5mb " 1mb"} {
            assert_typed "-ERR CONFIG SET failed (possibly related to argument 'maxmemory')\
                - argument must be a memory value" config set maxmemory $bad
        }
        replies {
            {config set maxmemory 0} +OK
            {config set proto-max-bulk-len 1}\
                "-ERR CONFIG SET failed (possibly related to argument 'proto-max-bulk-len') - argument must be between\
                1048576 and 9223372036854775807 inclusive"
            {config set maxmemory-clients 5%} +OK
            {config get maxmemory-clients} {* $maxmemory-clients $5%}
            {config set maxmemory-clients 101%}\
                "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') - percentage argument must\
                be less or equal to 100"
            {config set maxmemory-clients 100mb} +OK
            {config get maxmemory-clients} {* $maxmemory-clients $104857600}
            {config set maxmemory-clients 0} +OK
        }
    }

    test "booleans are yes or no" {
        replies {
            {config set activerehashing no} +OK
            {config get activerehashing} {* $activerehashing $no}
            {config set activerehashing YES} +OK
            {config get activerehashing} {* $activerehashing $yes}
            {config set activerehashing maybe}\
                "-ERR CONFIG SET failed (possibly related to argument 'activerehashing')\
                - argument must be 'yes' or 'no'"
            {config set activerehashing 1}\
                "-ERR CONFIG SET failed (possibly related to argument 'activerehashing')\
                - argument must be 'yes' or 'no'"
        }
    }

    test "enumerations list their values when refused" {
        replies {
            {config set maxmemory-policy foo}\
                "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - argument(s) must be one of\
                the following: volatile-lru, volatile-lfu, volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu,\
                allkeys-random, noeviction"
            {config set appendfsync foo}\
                "-ERR CONFIG SET failed (possibly related to argument 'appendfsync') - argument(s) must be one of the\
                following: everysec, always, no"
            {config set loglevel foo}\
                "-ERR CONFIG SET failed (possibly related to argument 'loglevel') - argument(s) must be one of the\
                following: debug, verbose, notice, warning, nothing"
            {config set loglevel WARNING} +OK
            {config get loglevel} {* $loglevel $warning}
            {config set loglevel notice} +OK
        }
    }

    test "options that cannot be set at run time" {
        foreach name {databases daemonize unixsocket unixsocketperm logfile pidfile tcp-backlog always-show-logo\
            set-proc-title supervised} {
            assert_typed "-ERR CONFIG SET failed (possibly related to argument '$name') - can't set immutable config" \
                config set $name 1
        }
    }

    test "save" {
        replies {
            {config set save "1 2"} +OK
            {config get save} {* $save {$1 2}}
            {config set save "60 1000 900 1"} +OK
            {config get save} {* $save {$60 1000 900 1}}
            {config set save "900 1 300"}\
                "-ERR CONFIG SET failed (possibly related to argument 'save') - Invalid save parameters"
            {config set save "900 x"}\
                "-ERR CONFIG SET failed (possibly related to argument 'save') - Invalid save parameters"
            {config set save "0 1"} "-ERR CONFIG SET failed (possibly related to argument 'save')\
                - Invalid save parameters"
            {config set save "1 -1"}\
                "-ERR CONFIG SET failed (possibly related to argument 'save') - Invalid save parameters"
            {config set save ""} +OK
            {config get save} {* $save $}
        }
    }

    test "client-output-buffer-limit" {
        replies {
            {config set client-output-buffer-limit "normal 1mb 2mb 60"} +OK
            {config get client-output-buffer-limit}\
                {* $client-output-buffer-limit\
                {$normal 1048576 2097152 60 slave 268435456 67108864 60 pubsub 33554432 8388608 60}}
            {config set client-output-buffer-limit "normal 0 0 0 pubsub 1 2 3"} +OK
            {config get client-output-buffer-limit}\
                {* $client-output-buffer-limit {$normal 0 0 0 slave 268435456 67108864 60 pubsub 1 2 3}}
            {config set client-output-buffer-limit "replica 1k 2k 3"} +OK
            {config get client-output-buffer-limit}\
                {* $client-output-buffer-limit {$normal 0 0 0 slave 1000 2000 3 pubsub 1 2 3}}
            {config set client-output-buffer-limit "normal 0 0"}\
                "-ERR CONFIG SET failed (possibly related to argument 'client-output-buffer-limit')\
                - Wrong number of arguments in buffer limit configuration."
            {config set client-output-buffer-limit "foo 0 0 0"}\
                "-ERR CONFIG SET failed (possibly related to argument 'client-output-buffer-limit')\
                - Invalid client class specified in buffer limit configuration."
            {config set client-output-buffer-limit "normal a 0 0"}\
                "-ERR CONFIG SET failed (possibly related to argument 'client-output-buffer-limit')\
                - Error in hard, soft or soft_seconds setting in buffer limit configuration."
            {config set client-output-buffer-limit "normal 0 0 -1"}\
                "-ERR CONFIG SET failed (possibly related to argument 'client-output-buffer-limit')\
                - Error in hard, soft or soft_seconds setting in buffer limit configuration."
            {config set client-output-buffer-limit\
                "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"} +OK
        }
    }

    test "notify-keyspace-events is shown in its own order" {
        replies {
            {config set notify-keyspace-events KEA} +OK
            {config get notify-keyspace-events} {* $notify-keyspace-events $AKE}
            {config set notify-keyspace-events E$lx} +OK
            {config get notify-keyspace-events} {* $notify-keyspace-events {$$lxE}}
            {config set notify-keyspace-events foo}\
                "-ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events')\
                - Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
            {config set notify-keyspace-events ""} +OK
        }
    }

    test "oom-score-adj-values and latency-tracking-info-percentiles" {
        replies {
            {config set oom-score-adj-values "1 2"}\
                "-ERR CONFIG SET failed (possibly related to argument 'oom-score-adj-values')\
                - wrong number of arguments"
            {config set oom-score-adj-values "0 200 800"} +OK
            {config get oom-score-adj-values} {* $oom-score-adj-values {$0 200 800}}
            {config set latency-tracking-info-percentiles "50 99 x"}\
                "-ERR CONFIG SET failed (possibly related to argument 'latency-tracking-info-percentiles')\
                - Invalid latency-tracking-info-percentiles parameters"
            {config set latency-tracking-info-percentiles "50 99 101"}\
                "-ERR CONFIG SET failed (possibly related to argument 'latency-tracking-info-percentiles')\
                - latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
            {config set latency-tracking-info-percentiles "50 99 99.9"} +OK
            {config get latency-tracking-info-percentiles} {* $latency-tracking-info-percentiles {$50 99 99.9}}
            {config set latency-tracking-info-percentiles ""} +OK
            {config get latency-tracking-info-percentiles} {* $latency-tracking-info-percentiles $}
            {config set latency-tracking-info-percentiles "50 99 99.9"} +OK
        }
    }

    test "oom-score-adj follows the role, and gives back the score from before" -needs {file /proc/self/oom_score_adj} {
        proc score {} {string trim [file_bytes /proc/[srv pid]/oom_score_adj]}
        set before [score]
        r config set oom-score-adj-values "10 20 30" oom-score-adj relative
        assert_equal [expr {$before + 10}] [score]
        r replicaof 127.0.0.1 1
        assert_equal [expr {$before + 20}] [score]
        r replicaof no one
        assert_equal [expr {$before + 10}] [score]
        r config set oom-score-adj no
        assert_equal $before [score]
        write_file /proc/[srv pid]/oom_score_adj [expr {$before + 3}]
        r config set oom-score-adj yes
        assert_equal [expr {$before + 13}] [score]
        r config set oom-score-adj no
        assert_equal [expr {$before + 3}] [score]
    }

    test "maxmemory-clients has a minimum, so that clients can still connect" {
        r config set maxmemory-clients 2
        assert_equal PONG [r ping]
        r config set maxmemory-clients 0
    }

    test "two names of one option are one option" {
        foreach {old new value back} {
            slave-priority replica-priority 5 100
            slave-read-only replica-read-only no yes
            slave-serve-stale-data replica-serve-stale-data no yes
            lua-time-limit busy-reply-threshold 10 5000
            hash-max-ziplist-entries hash-max-listpack-entries 7 512
            zset-max-ziplist-value zset-max-listpack-value 8 64
            repl-ping-slave-period repl-ping-replica-period 9 10
            masterauth primaryauth x {}
        } {
            r config set $old $value
            assert_equal $value [config_get $new]
            assert_equal $value [config_get $old]
            r config set $new $back
            assert_equal $back [config_get $old]
        }
        assert_same_elements {replica-priority 100 slave-priority 100} [r config get *-priority]
        assert_equal 100 [config_get replica-priority]
    }

    # A search in steps of 16 descriptors took minutes, and no client was served.
    test "a number of clients that the system cannot handle is refused, and the possible one is named" -needs {ours 1} {
        foreach wanted {4000000000 4000000007} {
            assert_error_like "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system\
                is not able to handle the specified number of clients, try with *" {r config set maxclients $wanted}
        }
        assert_equal 10000 [config_get maxclients]
    }

    test "protected options need enable-protected-configs" {
        # This server allows them.
        assert_typed +OK config set dir [srv dir]
        assert_typed +OK config set dbfilename other.rdb
        replies {
            {config set dbfilename a/b}\
                "-ERR CONFIG SET failed (possibly related to argument 'dbfilename') - dbfilename can't be a path,\
                just a filename"
            {config set dir /nosuch}\
                "-ERR CONFIG SET failed (possibly related to argument 'dir') - No such file or directory"
            {config set dbfilename dump.rdb} +OK
        }
    }

    # --- CONFIG RESETSTAT, HELP ------------------------------------------------------------

    test "CONFIG RESETSTAT sets the counters to zero" {
        r get none
        r set a 1 px 1
        catch {r nosuchcommand}
        wait_for_condition 3000 {[info_field stats expired_keys] >= 1}
        r bgsave
        wait_for_condition 3000 {[info_field persistence rdb_bgsave_in_progress] == 0}
        assert_typed +OK config resetstat
        set s [info_dict [r info stats]]
        foreach f {expired_keys keyspace_hits keyspace_misses total_connections_received rejected_connections\
            evicted_keys
            total_error_replies unexpected_error_replies latest_fork_usec total_forks} {
            assert_equal 0 [dict get $s $f] $f
        }
        assert_range [dict get $s total_commands_processed] 0 2
        set commands [dict keys [info_dict [r info commandstats]]]
        assert {"cmdstat_get" ni $commands}
        assert_equal "" [string trim [lindex [split [r info errorstats] \n] 1]]
    }

    test "CONFIG HELP and wrong arguments" {
        set help [r config help]
        foreach word {GET SET RESETSTAT REWRITE HELP} {assert_match "*$word*" $help}
        replies {
            {config} "-ERR wrong number of arguments for 'config' command"
            {config foo} "-ERR unknown subcommand 'foo'. Try CONFIG HELP."
            {config get} "-ERR wrong number of arguments for 'config|get' command"
            {config set} "-ERR wrong number of arguments for 'config|set' command"
            {config set maxclients} "-ERR wrong number of arguments for 'config|set' command"
            {config set nosuch 1} "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'"
            {config resetstat x} "-ERR wrong number of arguments for 'config|resetstat' command"
            {config rewrite x} "-ERR wrong number of arguments for 'config|rewrite' command"
            {config help x} "-ERR wrong number of arguments for 'config|help' command"
        }
    }

    test "log levels filter the log" {
        r config set loglevel debug
        r debug log "a line of mine"
        wait_for_log "DEBUG LOG: a line of mine"
        r config set loglevel nothing
        set from [log_size]
        r debug log "not this one"
        assert_equal "" [log_text $from]
        r config set loglevel notice
    }
}

start_server {overrides {enable-protected-configs no enable-debug-command no} tags {config}} {
    test "protected options cannot be set by default" {
        replies {
            {config set dir /tmp} "-ERR CONFIG SET failed (possibly related to argument 'dir')\
                - can't set protected config"
            {config set dbfilename x}\
                "-ERR CONFIG SET failed (possibly related to argument 'dbfilename') - can't set protected config"
            {config set enable-protected-configs yes}\
                "-ERR CONFIG SET failed (possibly related to argument 'enable-protected-configs')\
                - can't set immutable config"
        }
    }

    test "DEBUG cannot be used by default" {
        assert_typed "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can\
            run it from a local connection, otherwise you need to set this option in the configuration file, and then\
            restart the server." debug sleep 0
    }
}

start_server {overrides {enable-protected-configs local enable-debug-command local} tags {config}} {
    test "'local' allows protected options and DEBUG to local connections" -tags {tcp-only} {
        replies {{config set dbfilename x} +OK {debug sleep 0} +OK}
    }
}

# --- CONFIG REWRITE --------------------------------------------------------------------------

proc conf_lines {} {split [string trimright [file_bytes [srv conf]] \n] \n}

start_server {config {{loadmodule /nowhere/valkey-rdma.so rx-size=131072} {timeout 17}} tags {config}} {
    test "CONFIG REWRITE replaces loadmodule lines by the options that their arguments set" -needs {ours 1} {
        assert_equal 131072 [dict get [r config get rdma-rx-size] rdma-rx-size]
        r config set timeout 18
        assert_typed +OK config rewrite
        assert_equal {} [lsearch -all -inline -glob [conf_lines] loadmodule*]
        assert_equal {{rdma-rx-size 128kb}} [lsearch -all -inline -glob [conf_lines] rdma-rx-size*]
        restart_server
        assert_equal 131072 [dict get [r config get rdma-rx-size] rdma-rx-size]
    }
}

start_server {config {{client-output-buffer-limit replica 300mb 64mb 60} {# Between}\
    {client-output-buffer-limit pubsub 0 0 0}} tags {config}} {
    test "CONFIG REWRITE replaces the lines of an option one by one, and adds the others at the end" {
        assert_typed +OK config rewrite
        set after [conf_lines]
        set order [lmap want {{client-output-buffer-limit normal 0 0 0} {# Between}\
            {client-output-buffer-limit replica 300mb 64mb 60} {# Generated by CONFIG REWRITE}\
            {client-output-buffer-limit pubsub 0 0 0}} {lsearch -exact $after $want}]
        assert_equal [lsort -integer $order] $order
        assert {[lindex $order 0] >= 0}
        assert_equal 3 [llength [lsearch -all -glob $after client-output-buffer-limit*]]
        restart_server
        assert_equal "normal 0 0 0 slave 314572800 67108864 60 pubsub 0 0 0" \
            [dict get [r config get client-output-buffer-limit] client-output-buffer-limit]
    }
}

start_server {config {{# A comment of mine} {} {#maxclients 3} {timeout    17} {tcp-keepalive 60} {# Behind}\
    {maxmemory 10mb}} tags {config}} {
    test "CONFIG REWRITE keeps comments, order and the lines of unchanged options" {
        set before [conf_lines]
        assert_typed +OK config rewrite
        set after [conf_lines]
        foreach line {{# A comment of mine} {#maxclients 3} {tcp-keepalive 60} {# Behind}} {assert_in $line $after}
        set order [lmap want {{# A comment of mine} {#maxclients 3} {timeout 17} {tcp-keepalive 60} {# Behind}\
            {maxmemory 10mb}} {lsearch -exact $after $want}]
        assert_equal [lsort -integer $order] $order
        assert {[lindex $order 0] >= 0 && [lindex $order 2] >= 0}
    }

    test "CONFIG REWRITE changes options in their lines and adds new ones at the end" {
        r config set timeout 18 maxclients 5000 maxmemory 0
        assert_typed +OK config rewrite
        set after [conf_lines]
        assert {[lsearch -exact $after "timeout 18"] < [lsearch -exact $after "tcp-keepalive 60"]}
        assert {[lsearch -exact $after "timeout 18"] > [lsearch -exact $after "#maxclients 3"]}
        assert {[lsearch -exact $after "maxclients 5000"] > [lsearch -exact $after "# Behind"]}
        assert_in "# Generated by CONFIG REWRITE" $after
        # An option that was in the file remains there, even with its default.
        assert_in "maxmemory 0" $after
        assert {[lsearch -glob $after "appendfsync*"] < 0}
        # Always written, but not for a Sentinel.
        assert_equal 1 [llength [lsearch -all -glob $after "save *"]]
    }

    test "a second CONFIG REWRITE changes nothing" {
        r config rewrite
        set once [file_bytes [srv conf]]
        r config rewrite
        assert_equal $once [file_bytes [srv conf]]
    }

    test "what CONFIG REWRITE wrote is what a restart reads" {
        r config set save "100 1 200 2" requirepass "a \"quoted\" \x01 pass" client-output-buffer-limit \
            "normal 1mb 2mb 60" \
            latency-tracking-info-percentiles "10 20.5" notify-keyspace-events Kg slave-priority 7\
            proc-title-template "{title} x"
        r config set oom-score-adj-values "1 2 3"
        r config rewrite
        set before [r config get *]
        set ::server([srv id],auth) "a \"quoted\" \x01 pass"
        restart_server
        set after [r config get *]
        foreach {name value} $before {
            assert_equal $value [dict get $after $name] $name
        }
        assert_equal 5000 [config_get maxclients]
        assert_equal "100 1 200 2" [config_get save]
    }

    test "CONFIG REWRITE with save turned off stays off after a restart" {
        r config set save ""
        r config rewrite
        restart_server
        assert_equal "" [config_get save]
    }

    test "CONFIG REWRITE when the file cannot be written says why" {
        set conf [srv conf]
        file rename $conf $conf.away
        file mkdir $conf
        assert_error_like "ERR Rewriting config file: *" {r config rewrite}
        file delete $conf
        file rename $conf.away $conf
        assert_typed +OK config rewrite
    }

    test "CONFIG REWRITE writes no file that is too large to be read" {
        set before [file_bytes [srv conf]]
        r config set primaryauth [string repeat x 67108864]
        assert_error "ERR Rewriting config file: File too large" {r config rewrite}
        assert_equal $before [file_bytes [srv conf]]
        r config set primaryauth ""
        assert_typed +OK config rewrite
    }
}

start_server {tags {config}} {
    test "CONFIG REWRITE replaces the file as a whole" {
        set inode [file stat [srv conf] st; set st(ino)]
        r config set maxclients 4000
        r config rewrite
        assert_in "maxclients 4000" [conf_lines]
        assert_equal {} [glob -nocomplain [file dirname [srv conf]]/*.tmp]
        assert_equal {} [glob -nocomplain [srv conf]-*]
    }
}

start_server {overrides {save -} tags {config}} {
    test "lines of save add up, but a line after an included file replaces those of that file" {
        set conf [srv conf]
        set main [file_bytes $conf]
        set included [srv dir]/included.conf
        write_file $included "save 3 3\n"
        set cases {
            {{save 100 1} {save 200 2}}         "100 1 200 2"
            {{save 100 1} include}              "100 1 3 3"
            {include include}                   "3 3 3 3"
            {include {save 100 1}}              "100 1"
            {{save 9 9} include {save 100 1}}   "100 1"
            {{save 9 9} {save ""} {save 100 1}} "100 1"
        }
        # Valkey 9.1 has "200 2" here: after an included file each line replaces the previous one.
        if {[server_is_ours]} {lappend cases {include {save 100 1} {save 200 2}} "100 1 200 2"}
        foreach {lines value} $cases {
            set lines [lmap line $lines {expr {$line eq "include" ? "include $included" : $line}}]
            write_file $conf $main[join $lines \n]\n
            restart_server
            assert_equal $value [config_get save] $lines
        }
        write_file $conf "include $included\n$main"
        restart_server
        assert_equal "3 3" [config_get save]
        r config set save "100 1 200 2"
        r config rewrite
        restart_server
        assert_equal "100 1 200 2" [config_get save]
    }
}
