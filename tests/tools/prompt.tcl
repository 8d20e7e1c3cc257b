# valkey-cli at a terminal: prompt, editing, history, completion, hints, messages. build/programs/terminal plays the
# terminal. seconds: 8

set cli [file join [expr {[info exists ::env(TOOLS)] ? $::env(TOOLS) : "$::root/src"}] valkey-cli]
set terminal [tool terminal]
set home [file join $::unit_dir home]
file mkdir $home

# Types each of these when the prompt has come, and gives {exit code, everything that was on the screen}.
proc terminal {args} {
    set got [run $::terminal "prompt=> " {*}$args -- env HOME=$::home TERM=xterm $::cli -h [srv host] -p [srv port]]
    return [list [dict get $got code] [dict get $got out]]
}
# The same for lines, without colours and cursor movements; the program is to end well.
proc typed {args} {
    lassign [terminal {*}[lmap line $args {string cat $line \\r}] {quit\r}] code screen
    set screen [string map {\r\n \n} $screen]
    regsub -all {\x1b7.*?\x1b8} $screen "" screen
    regsub -all {\x1b\[[0-9;]*[A-Za-z]} $screen "" screen
    assert_equal 0 $code [printable $screen 2000]
    return $screen
}
proc preferences {text} {write_file [file join $::home .valkeyclirc] "$text\n"}

start_server {} {
    set needs {tool terminal}

    test "the prompt shows address, database and transaction" -needs $needs {
        preferences ":set nohints"
        set at [srv host]:[srv port]
        set screen [typed "set prompt:k 1" "select 3" "select 0"]
        assert_match "*$at> set prompt:k 1\nOK\n$at> select 3\nOK\n$at\\\[3\\\]> select 0\nOK\n$at> quit\n*" $screen
        set screen [typed multi "set prompt:k 2" exec multi discard]
        assert_match "*$at> multi\nOK\n${at}(TX)> set prompt:k 2\nQUEUED\n${at}(TX)> exec\n1) OK\n$at>\
            multi\nOK\n${at}(TX)> discard\nOK\n$at> quit\n*" $screen
    }

    test "a SELECT in a transaction counts when EXEC has executed it" -needs {tool terminal ours 1} {
        preferences ":set nohints"
        set at [srv host]:[srv port]
        set screen [typed multi "echo a" "select 4" "select 99" exec "client kill type normal skipme no" ping ping]
        assert_match "*$at\\\[4\\\]> client kill*$at\\\[4\\\]> quit\n*" $screen
        foreach end {discard {exec extra} reset} {
            set screen [typed multi "select 5" $end]
            assert_match "*$at> quit\n*" $screen $end
        }
    }

    test "replies are shown with their types" -needs $needs {
        set screen [typed "set n 5" "incr n" "get n" "get nosuch" foo {get "x}]
        assert_match "*(integer) 6\n*\"6\"\n*(nil)\n*(error) ERR unknown command 'foo'*Invalid argument(s)\n*" $screen
    }

    test "connect changes the server, and the prompt says where it is not connected" -needs $needs {
        set port [free_port]
        set at [srv host]:[srv port]
        set screen [typed "connect 127.0.0.1 $port" ping "connect [srv host] [srv port]" ping]
        assert_match "*Could not connect to Valkey at 127.0.0.1:$port: Connection refused\nnot connected> ping\n*$at>\
            ping\nPONG\n*" $screen
    }

    test "a connection that the server closed is made anew" -needs $needs {
        set screen [typed "client kill type normal skipme no" ping ping]
        assert_match "*PONG\n*" $screen
        assert_not_match "*rror: *rror: *" $screen
    }

    test "lines are kept in the history file, but none with a password" -needs $needs {
        file delete [file join $::home .valkeycli_history]
        typed "echo one" "auth secret" {config set requirepass ""} "acl setuser x >pw" "hello 3 auth a b" "echo two"
        assert_equal "echo one\necho two\nquit\n" [file_bytes [file join $::home .valkeycli_history]]
        assert_equal 0600 [string range [file attributes [file join $::home .valkeycli_history] -permissions] end-3 end]
        assert_match "*echo two\n\"two\"\n*" [typed {\e[A\e[A}]
    }

    test "the line can be edited" -needs $needs {
        assert_match "*\"abc\"\n*" [typed {ho abc\x01ec}] "Ctrl-A goes to the start"
        assert_match "*\"ab\"\n*" [typed {echo abc\x08}] "Backspace deletes"
        assert_match "*PONG\n*" [typed {rubbish\x15ping}] "Ctrl-U deletes the line"
    }

    test "Tab completes commands" -needs $needs {
        assert_match "*# Server*" [typed {inf\x09server}]
        assert_match "*config get*config set*" [typed {config \x09\x15ping}]
        assert_match "*APPEND*summary:*" [typed {help @stri\x09}]
    }

    test "hints show what may follow" -needs $needs {
        preferences ":set hints"
        lassign [terminal {set a \p\x15quit\r}] code screen
        assert_equal 0 $code
        assert_match "*\x1b7*value *NX|XX*\x1b8\x1b\\\[K*" $screen
        preferences ":set nohints"
    }

    test "a hint shows what follows the word that is being typed" -needs $needs {
        preferences ":set hints"
        foreach {line hint} {
            "set"           " key value*"
            "set k"         " value *NX|XX*"
            "set k v EX"    " seconds *NX|XX*"
            "set k v EX "   "seconds *NX|XX*"
            "set k v EX 10" " *NX|XX*GET*"
            "set k v E"     " *NX|XX*EX seconds*"
            "config get m"  " *parameter ...*"
        } {
            lassign [terminal "$line\\p\\x15quit\\r"] code screen
            set shown [lmap {all text} [regexp -all -inline {\x1b7\x1b\[90m(.*?)\x1b\[0m\x1b8} $screen] {set text}]
            assert_match $hint [lindex $shown end] $line
            if {$line eq "set k v EX 10"} {assert_not_match "*seconds*" [lindex [split [lindex $shown end] E] 0]}
        }
        preferences ":set nohints"
    }

    test "Tab completes options behind CONFIG GET and CONFIG SET" -needs $needs {
        assert_match "*maxmemory*noeviction*" [typed {config get maxmemory-p\x09}]
        assert_match "*OK\n*" [typed {CONFIG SET maxmemory-sa\x095}]
        assert_match "*maxmemory-policy*maxmemory-samples*" [typed {config get maxmemory-\x09\x15ping}]
        typed {config set hz 20 maxmemory-sa\x097}
        assert_equal 7 [config_get maxmemory-samples] "each other word is an option"
        set screen [typed {config set maxmemory-samples hz\x09\x15ping}]
        assert_not_match "*hz *ping*" $screen "a value is none"
        set screen [typed multi {config get maxmemory-p\x09\x15ping} discard]
        assert_match "*QUEUED*" $screen
        assert_not_match "*maxmemory-policy*" $screen "within MULTI the server would queue the question"
    }

    test "Ctrl-D ends the program" -needs $needs {
        assert_equal 0 [lindex [terminal {\x04}] 0]
    }

    test "Ctrl-C ends the program at the prompt, and a wait for the server otherwise" -needs $needs {
        assert_equal 0 [lindex [terminal {\x03}] 0]
        set screen [typed {monitor\r\p\x03\pping}]
        assert_match "*OK\n*Closing current connection. Ready to reconnect to Valkey server...*not connected>\
            *PONG\n*" $screen
    }

    test "slow commands show how long they took" -needs {tool terminal command debug} {
        assert_regexp {OK\n\(0\.[67]\d*s\)\n|OK\n\(1\.\d\ds\)\n} [typed "debug sleep 0.6"]
    }

    test "preferences that are not known are refused" -needs $needs {
        assert_match "*unknown valkey-cli preference 'foo'\n*" [typed ":set foo"]
        assert_match "*Use 'restart' only in Lua debugging mode.\n*" [typed restart]
    }

    test "RESP3 push messages are shown as they come" -needs {tool terminal} {
        set screen [typed "hello 3" "client tracking on" "get tracked" "set tracked 1" "ping"]
        if {![string match "*(error)*" $screen]} {assert_match "*-> invalidate: 'tracked'\n*PONG\n*" $screen}
    }
}
