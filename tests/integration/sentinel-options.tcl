# Passwords, scripts, host names and renamed commands of Sentinels.
# seconds: 24

proc link_answers {i} {
    set fields [s $i sentinel primary group]
    expr {[dict get $fields last-ok-ping-reply] < 1500 && ![string match *down* [dict get $fields flags]]}
}
proc other_sentinel_flags {i} {dict get [lindex [s $i sentinel sentinels group] 0] flags}
# Replaces the file: one that is being executed cannot be opened for writing.
proc write_script {path text} {
    set file [open $path.new w 0755]
    puts $file "#!/bin/sh\n$text"
    close $file
    file rename -force $path.new $path
}
proc file_matches {path pattern} {expr {[file exists $path] && [string match $pattern [file_bytes $path]]}}

start_sentinels {servers 2 sentinels 2 overrides {rename-command {slaveof moved-slaveof}} config {
    "sentinel rename-command group slaveof moved-slaveof" "sentinel deny-scripts-reconfig no"
}} {
    set directory [file dirname [s_srv 0 conf]]

    test "Commands that a server has renamed are sent by their new names" {
        set port [named_port 0]
        wait_for_condition 20000 {![catch {s 0 sentinel failover group}]} "no failover is possible"
        wait_for_followers [wait_for_switch $port]
    }

    test "Sentinels use a password of the servers as soon as it is set" {
        foreach i {0 1} {s $i sentinel set group down-after-milliseconds 60000}
        set primary [server_of_port [named_port 0]]
        g $primary config set requirepass secret
        foreach type {normal pubsub} {g $primary client kill type $type}
        wait_for_condition 10000 {[dict get [s 0 sentinel primary group] last-ok-ping-reply] > 2500} \
            "the password did not keep the Sentinel out"
        wait_for_condition 10000 {[string match *disconnected* [dict get [s 0 sentinel primary group] flags]]} \
            "a server that refuses the Sentinel is shown as connected"
        foreach i {0 1} {s $i sentinel set group auth-pass secret}
        foreach i {0 1} {wait_for_condition 10000 {[link_answers $i]} "Sentinel $i does not use the password"}
        foreach i {0 1} {s $i sentinel set group auth-user default}
        foreach i {0 1} {wait_for_condition 10000 {[link_answers $i]} "Sentinel $i does not use the user"}
        g $primary config set requirepass ""
        foreach i {0 1} {s $i sentinel set group auth-user "" auth-pass "" down-after-milliseconds 1000}
    }

    test "Sentinels use the password of other Sentinels" {
        s 1 acl setuser default resetpass >word
        s 1 client kill type normal skipme yes
        wait_for_condition 10000 {[string match *s_down* [other_sentinel_flags 0]]} "the password is not needed"
        s 0 sentinel config set sentinel-pass word
        wait_for_condition 10000 {![string match *down* [other_sentinel_flags 0]]} "the password is not used"
        s 1 acl setuser other on >word2 ~* &* +@all
        s 0 sentinel config set sentinel-user other sentinel-pass word2
        wait_for_condition 10000 {[string match *user=other* [s 1 client list]]} "the user is not used"
        s 1 acl setuser default nopass
        s 0 sentinel config set sentinel-user "" sentinel-pass ""
    }

    test "A notification script is run again if it fails, and killed if it takes too long" {
        s 0 sentinel debug script-retry-delay 100 script-max-runtime 300
        write_script $directory/notify "test -e $directory/tried || { touch $directory/tried; exit 1; }
            echo \"\$*\" >>$directory/notes"
        assert_error_like "ERR Invalid argument*" {s 0 sentinel set group notification-script $directory/none}
        s 0 sentinel set group notification-script $directory/notify
        wait_for_condition 10000 {[file_matches $directory/notes "*+set master group*notification-script*"]} \
            "the script did not run again"
        write_script $directory/hangs "exec sleep 100"
        set level [sentinel_level [lindex $::sentinel_ids 0]]
        set from [log_size $level]
        s 0 sentinel set group notification-script $directory/hangs
        wait_for_log "*-script-timeout $directory/hangs *" $from 10000 $level
        wait_for_condition 10000 {[string match "*retry-num 2*" [s 0 sentinel pending-scripts]]} \
            "a killed script is not run again"
        s 0 sentinel set group notification-script ""
        write_script $directory/hangs "exit 2"
        wait_for_log "*-script-error $directory/hangs 0 2*" $from 10000 $level
        wait_for_condition 10000 {[s 0 sentinel pending-scripts] eq {}} "scripts remain"
    }

    test "The reconfiguration script is told both addresses" {
        foreach i {0 1} {
            write_script $directory/reconfigure$i "echo \"\$*\" >>$directory/changes$i"
            s $i sentinel set group client-reconfig-script $directory/reconfigure$i
        }
        set port [named_port 0]
        wait_for_condition 20000 {![catch {s 0 sentinel failover group}]} "no failover is possible"
        set new [wait_for_switch $port]
        foreach {i role} {0 leader 1 observer} {
            wait_for_condition 10000 {
                [file_matches $directory/changes$i "group $role start 127.0.0.1 $port 127.0.0.1 $new\n"]
            } "Sentinel $i did not run the script"
        }
    }

    test "Host names are resolved and announced if that is set" {
        assert_error "ERR Invalid IP address or hostname specified" {s 0 sentinel monitor named localhost 1 1}
        s 0 sentinel config set resolve-hostnames yes
        s 0 sentinel monitor named localhost 1 1
        assert_match {[1:]*} [lindex [s 0 sentinel get-primary-addr-by-name named] 0]
        s 0 sentinel config set announce-hostnames yes
        assert_equal {localhost 1} [s 0 sentinel get-primary-addr-by-name named]
        s 0 sentinel flushconfig
        assert_match "*sentinel monitor named localhost 1 1\n*" [file_bytes [s_srv 0 conf]]
        s 0 sentinel remove named
    }

    test "A Sentinel starts again after names in quotes and after host names that are no longer resolved" {
        set nowhere [string repeat x 70] ;# too long for a name: it is looked up nowhere
        s 0 sentinel monitor named localhost 1 1
        s 0 sentinel monitor \" 127.0.0.1 2 1
        stop_sentinel 0 TERM
        set conf [s_srv 0 conf]
        set lines "sentinel monitor far $nowhere 3 1\nsentinel known-replica named $nowhere 4\n"
        write_file $conf [file_bytes $conf]$lines
        start_sentinel 0
        assert_error "ERR Invalid value 'no' to SENTINEL CONFIG SET 'resolve-hostnames'" {
            s 0 sentinel config set resolve-hostnames no
        }
        s 0 sentinel remove far
        s 0 sentinel config set resolve-hostnames no
        stop_sentinel 0 TERM
        start_sentinel 0
        assert_match {[1:]* 1} [s 0 sentinel get-primary-addr-by-name named]
        assert_equal {127.0.0.1 2} [s 0 sentinel get-primary-addr-by-name \"]
        foreach name {named \"} {s 0 sentinel remove $name}
    }

    test "Values of more than 1 MiB are refused, so that the file does not become too large to be read" {
        set value [string repeat x 1048577]
        assert_error_like "ERR Invalid argument 'xxx*' for SENTINEL SET 'auth-pass'" {
            s 0 sentinel set group auth-pass $value
        }
        assert_error_like "ERR Invalid argument 'xxx*' for SENTINEL SET 'rename-command'" {
            s 0 sentinel set group rename-command info $value
        }
        assert_error_like "ERR Invalid value 'xxx*' to SENTINEL CONFIG SET 'sentinel-pass'" {
            s 0 sentinel config set sentinel-pass $value
        }
    }

    test "Names of messages that do not resolve are not all logged" {
        set level [sentinel_level [lindex $::sentinel_ids 0]]
        set from [log_size $level]
        set message "nowhere,26379,[string repeat c 40],1,group,127.0.0.1,1,0"
        for {set i 0} {$i < 500} {incr i} {s 0 publish __sentinel__:hello $message}
        wait_for_log "*Failed to resolve hostname 'nowhere'*" $from 5000 $level
        assert {[regexp -all "Failed to resolve hostname" [log_text $from $level]] < 250}
    }

    test "Times have a limit" {
        set most 9223372036854775807
        s 0 sentinel set group failover-timeout $most down-after-milliseconds $most
        s 0 sentinel debug ask-period $most
        assert_equal 1000000000000000 [sentinel_field 0 failover-timeout]
        assert_equal 1000000000000000 [sentinel_field 0 down-after-milliseconds]
        assert_equal 1000000000000000 [dict get [s 0 sentinel debug] ASK-PERIOD]
    }
}

set names [file join $::unit_dir names]
start_sentinels [list servers 2 sentinels 1 quorum 1 config {"sentinel resolve-hostnames yes"} \
    env [list LD_PRELOAD=[tool preload/slow-names.so] SLOW_NAMES=$names] \
] {
    test "a name server that does not answer does not stop the failure detection" -needs {ours 1} {
        s 0 sentinel set group quorum 2 ;# no failover
        set message "peer.slow,26379,[string repeat c 40],1,group,127.0.0.1,[g_srv 0 port],0"
        s 0 publish __sentinel__:hello $message
        s 0 publish __sentinel__:hello [string map {peer other} $message]
        assert_equal {} [s 0 sentinel sentinels group]
        exec kill -STOP [g_srv 0 pid]
        wait_for_condition 20000 {[string match *s_down* [sentinel_field 0 flags]]} "the primary does not look down"
        exec kill -CONT [g_srv 0 pid]
        wait_for_condition 20000 {[sentinel_field 0 flags] eq "master"} "the primary looks down for ever"
        write_file $names 127.0.0.1
        wait_for_condition 20000 {
            [s 0 publish __sentinel__:hello $message] ne "" && [llength [s 0 sentinel sentinels group]] == 1
        } "the Sentinel does not use the address"
        assert_equal 127.0.0.1 [dict get [lindex [s 0 sentinel sentinels group] 0] ip]
        # The name has another address now, and then none.
        write_file $names 127.0.0.2
        wait_for_condition 20000 {
            [s 0 publish __sentinel__:hello $message] ne "" &&
            [dict get [lindex [s 0 sentinel sentinels group] 0] ip] eq "127.0.0.2"
        } "the Sentinel keeps the old address"
        set level [sentinel_level [lindex $::sentinel_ids 0]]
        write_file $names ""
        wait_for_condition 20000 {
            [s 0 publish __sentinel__:hello $message] ne "" &&
            [log_has "*Failed to resolve hostname 'peer.slow'*" 0 $level]
        } "the failure is not logged"
    }
}
