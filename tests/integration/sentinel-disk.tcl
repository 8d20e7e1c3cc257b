# The file of a Sentinel on a disk that fails, is slow, or loses power: it is always a whole file, the old one or the
# new one, and no vote is given twice.

set temporary "*.conf.tmp-*"
proc conf_of {i} {file_bytes [s_srv $i conf]}
proc temporary_files {i} {glob -nocomplain [s_srv $i conf].tmp-*}
# Who Sentinel 0 says that it votes for when `id` asks for a vote: {id epoch}.
proc vote {epoch id} {lrange [s 0 sentinel is-primary-down-by-addr 127.0.0.1 [g_srv 0 port] $epoch $id] 1 2}
# The same, while the Sentinel ends: {} if no answer comes.
proc vote_until_it_ends {epoch id} {
    if {[catch {vote $epoch $id} answer]} {return {}}
    return $answer
}
set a [string repeat a 40]
set b [string repeat b 40]

start_sentinels {servers 2 sentinels 1 quorum 1 faults 1} {
    s 0 sentinel set group down-after-milliseconds 60000 quorum 2
    s 0 sentinel flushconfig

    test "a vote that cannot be written is not given" {
        set epoch 100
        set level [sentinel_level [lindex $::sentinel_ids 0]]
        foreach {rule reason} [list \
            "open $temporary fail EROFS" "Read-only file system" \
            "write $temporary fail ENOSPC" "No space left on device" \
            "write $temporary fail ENOSPC after=100" "No space left on device" \
            "sync $temporary fail EIO" "Input/output error" \
            "rename *.conf fail EACCES" "Permission denied" \
        ] {
            set before [conf_of 0]
            set from [log_size $level]
            sentinel_faults 0 $rule
            assert_equal {* 0} [vote [incr epoch] $a] $rule
            assert_equal $before [conf_of 0] $rule
            assert_equal {} [temporary_files 0] $rule
            set text "ERR Failed to save config file. Check server logs."
            assert_error $text {s 0 sentinel flushconfig}
            wait_for_log "*Sentinel was not able to save the new configuration on disk!!!: $reason*" $from 5000 $level
            sentinel_faults 0
            # It was decided all the same, so that nobody else gets it.
            assert_equal [list $a $epoch] [vote $epoch $b] $rule
            assert_match "*sentinel leader-epoch group $epoch\n*" [conf_of 0]
        }
    }

    test "a change by a command that cannot be written stays, and its reply says that it is not saved" {
        set text "ERR Failed to save config file. Check server logs."
        set before [conf_of 0]
        sentinel_faults 0 "write $temporary fail ENOSPC"
        foreach command {
            {set group quorum 2} {config set announce-port 7} {config set loglevel notice}
            {monitor other 127.0.0.1 1 1} {set other parallel-syncs 3}
        } {assert_error $text {s 0 sentinel {*}$command}}
        # An option that is refused is told, not the file.
        assert_error "ERR Unknown option or number of arguments for SENTINEL SET 'x'" {
            s 0 sentinel set other parallel-syncs 4 x y
        }
        assert_equal 4 [dict get [s 0 sentinel master other] parallel-syncs]
        assert_equal 1 [s 0 sentinel reset other]
        assert_error $text {s 0 sentinel remove other}
        assert_error "ERR No such master with that name" {s 0 sentinel master other}
        assert_equal $before [conf_of 0]
        sentinel_faults 0
        assert_equal OK [s 0 sentinel config set announce-port 0]
        assert_match "*announce-port*" [s 0 sentinel config get announce-port]
        assert {![string match "*announce-port*" [conf_of 0]]}
    }

    test "a file that cannot be read is not replaced" {
        s 0 sentinel flushconfig
        set conf [s_srv 0 conf]
        file rename $conf $conf.away
        file mkdir $conf
        assert_error "ERR Failed to save config file. Check server logs." {s 0 sentinel flushconfig}
        assert {[file isdirectory $conf]}
        file delete $conf
        file rename $conf.away $conf
        assert_equal OK [s 0 sentinel flushconfig]
    }

    test "a Sentinel that ends at any step of a write starts again with the old file or the new one" {
        set epoch 200
        set id [s 0 sentinel myid]
        set known [llength [s 0 sentinel replicas group]]
        foreach {rule seen} [list \
            "open $temporary kill" old "write $temporary kill" old "write $temporary kill after=100" old \
            "write $temporary powercut after=50" old "sync $temporary kill" old "rename *.conf kill" any \
            "rename *.conf powercut" any "close $temporary kill" any \
        ] {
            set before [conf_of 0]
            sentinel_faults 0 $rule
            set ::server([lindex $::sentinel_ids 0],expect_exit) 1
            set answer [vote_until_it_ends [incr epoch] $a]
            assert_equal {} $answer $rule
            assert_equal SIGKILL [server_reap [lindex $::sentinel_ids 0]] $rule
            sentinel_faults 0
            set after [conf_of 0]
            if {$seen eq "old"} {assert_equal $before $after $rule}
            assert {$before eq $after || [string match "*sentinel leader-epoch group $epoch\n*" $after]} $rule
            reconnect_of [lindex $::sentinel_ids 0]
            start_sentinel 0
            assert_equal $id [s 0 sentinel myid] $rule
            assert_equal $known [llength [s 0 sentinel replicas group]] $rule
            assert_equal 2 [sentinel_field 0 quorum] $rule
            # Nobody has heard of a vote for the first one: if it is on disk, it counts; if not, it was not given. One
            # that is answered now is not given to another any more.
            set given [vote $epoch $b]
            assert_equal $given [vote $epoch $a] $rule
            assert_equal $given [vote $epoch [string repeat c 40]] $rule
        }
    }

    test "a vote leaves when it is on disk, and not before" {
        sentinel_faults 0 "sync $temporary wait"
        set client [new_client -level [sentinel_level [lindex $::sentinel_ids 0]]]
        $client -send sentinel is-primary-down-by-addr 127.0.0.1 [g_srv 0 port] 300 $a
        wait_for_condition 10000 {[llength [temporary_files 0]]} "the write does not begin"
        assert {![string match "*leader-epoch group 300*" [conf_of 0]]}
        stop_sentinel 0
        catch {$client -close}
        sentinel_faults 0
        start_sentinel 0
        assert_equal [list $b 300] [vote 300 $b]
        assert_equal [list $b 300] [vote 300 $a]
    }

    test "a Sentinel removes at its start what it left behind when it was killed" {
        stop_sentinel 0
        write_file [s_srv 0 conf].tmp-4242-123456789012 x
        write_file [s_srv 0 conf].tmp x
        start_sentinel 0
        assert_equal {} [glob -nocomplain [s_srv 0 conf].tmp-4242-*]
        assert {[file exists [s_srv 0 conf].tmp]}
    }
}
