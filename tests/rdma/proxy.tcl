# valkey-rdma-proxy: clients over Unix sockets and TCP reach the server over RDMA.
# seconds: 4

set proxy [file join $root src valkey-rdma-proxy]

# Starts it: {spawn handle, address of --listen …}. A port of 0 is replaced by the one that it chose.
proc start_proxy {args} {start_proxy_to [srv port] {*}$args}
proc start_proxy_to {port args} {
    set server $::opt(rdma_host):$port
    set id [spawn {*}$::opt(launcher) $::proxy --server $server {*}$args]
    at_test_end [list catch [list kill_process KILL [spawn_pid $id]]]
    set count [llength [lsearch -all -exact $args --listen]]
    wait_for_condition 10000 {[regexp -all -line {^ready } [spawn_out $id]] == $count} \
        "the proxy does not listen: [spawn_err $id]"
    set addresses {}
    foreach {all address} [regexp -all -inline -line {^ready (.*)$} [spawn_out $id]] {lappend addresses $address}
    return [list $id {*}$addresses]
}
proc through {address args} {
    new_client -host 127.0.0.1 -port [lindex [split $address :] end] {*}$args
}
proc cli_through {socket args} {
    set got [run [file join $::root src valkey-cli] -s $socket {*}$args]
    return [string trim [dict get $got err][dict get $got out]]
}
proc stop_proxy {id} {
    kill_process TERM [spawn_pid $id]
    set got [spawn_wait $id 10000]
    assert_equal 0 [dict get $got code] [dict get $got err]
    return $got
}
proc status_of {id} {
    set before [regexp -all -line {^status:} [spawn_out $id]]
    kill_process USR1 [spawn_pid $id]
    wait_for_condition 5000 {[regexp -all -line {^status:} [spawn_out $id]] > $before}
    set status {}
    foreach field [lrange [lindex [lsearch -all -inline [split [spawn_out $id] \n] status:*] end] 1 end] {
        lassign [split $field =] name value
        dict set status $name $value
    }
    return $status
}

start_server {} {
    test "clients reach the server over RDMA, from TCP and a Unix socket" -needs [list file $proxy] {
        set socket [file join $unit_dir proxy.socket]
        unharmed {
            lassign [start_proxy --listen 0 --listen $socket] id address
            set c [through $address]
            assert_equal OK [$c set through proxy]
            assert_match "*transport=rdma*" [$c client info]
            assert_equal proxy [cli_through $socket get through]
            $c -close
            assert_match *700 [file attributes $socket -permissions]
            stop_proxy $id
        }
        assert_equal 0 [file exists $socket]
    }

    test "the permissions of the Unix socket can be chosen, passwords go to the server" -needs [list file $proxy] {
        set socket [file join $unit_dir proxy.socket]
        lassign [start_proxy --listen $socket --unixsocketperm 666] id
        assert_match *666 [file attributes $socket -permissions]
        r acl setuser proxied on >secret ~* +@all
        at_test_end {r acl deluser proxied}
        assert_equal proxied [cli_through $socket --user proxied --pass secret --no-auth-warning acl whoami]
        assert_match "*WRONGPASS*" [cli_through $socket --user proxied --pass wrong --no-auth-warning ping]
        stop_proxy $id
    }

    test "large values and pipelines pass in both directions, with threads" -needs [list file $proxy] {
        set value [numbered 8000000]
        unharmed {
            lassign [start_proxy --listen 0 --threads 3 --buffer 65536] id address
            for {set i 0} {$i < 6} {incr i} {lappend clients [through $address]}
            foreach c $clients {$c -send set big:[incr n] $value}
            foreach c $clients {assert_equal OK [$c -read]}
            foreach c $clients {$c -send get big:[incr m]}
            foreach c $clients {assert_equal $value [$c -read]}
            foreach c $clients {for {set i 0} {$i < 500} {incr i} {$c -send echo $i}}
            foreach c $clients {for {set i 0} {$i < 500} {incr i} {assert_equal $i [$c -read]}}
            set status [status_of $id]
            assert_equal {6 2,2,2 6} [dict values [dict filter $status key clients clients-of-threads accepted]]
            assert_morethan [dict get $status bytes-to-server] 48000000
            assert_morethan [dict get $status bytes-to-clients] 48000000
            foreach c $clients {$c -close}
            wait_for_condition 5000 {[dict get [status_of $id] clients] == 0}
            foreach i {1 2 3 4 5 6} {r del big:$i}
            stop_proxy $id
        }
    }

    test "a client that reads nothing does not fill the proxy's memory" -needs [list file $proxy] {
        lassign [start_proxy --listen 0 --buffer 65536] id address
        r set big [numbered 1000000]
        set c [through $address]
        $c ping
        set before [process_memory [spawn_pid $id]]
        for {set i 0} {$i < 60} {incr i} {$c -send get big}
        # The proxy is blocked when no more bytes of the replies pass.
        set passed -1
        wait_for_condition 10000 {$passed == [set passed [dict get [status_of $id] bytes-to-clients]]}
        assert_lessthan [expr {[process_memory [spawn_pid $id]] - $before}] 12000
        for {set i 0} {$i < 60} {incr i} {assert_equal 1000000 [string length [$c -read]]}
        r del big
        stop_proxy $id
    }

    test "a client that has ended its sending gets its replies" -needs [list file $proxy] {
        lassign [start_proxy --listen 0] id address
        set channel [socket 127.0.0.1 [lindex [split $address :] end]]
        at_test_end [list catch [list close $channel]]
        fconfigure $channel -translation binary
        puts -nonewline $channel "PING\r\nDEBUG SLEEP 0.1\r\nECHO last\r\n"
        flush $channel
        chan close $channel write
        assert_equal "+PONG\r\n+OK\r\n\$4\r\nlast\r\n" [read $channel]
        assert_equal 1 [eof $channel]
        stop_proxy $id
    }

    test "the ends of both connections follow each other" -needs [list file $proxy] {
        lassign [start_proxy --listen 0] id address
        set c [through $address]
        set name [$c client id]
        $c -close
        wait_for_condition 5000 {![string match "*id=$name *" [r client list]]}
        set c [through $address]
        $c -send quit
        assert_equal OK [$c -read]
        assert_closed $c
        set c [through $address]
        r client kill id [$c client id]
        assert_closed $c
        stop_proxy $id
    }

    test "clients beyond maxclients get an error, as from a server" -needs [list file $proxy] {
        lassign [start_proxy --listen 0 --maxclients 2] id address
        set first [through $address]
        set second [through $address]
        assert_equal {PONG PONG} [list [$first ping] [$second ping]]
        set third [through $address -deferring 1]
        assert_equal "-ERR max number of clients reached" [$third -readline]
        assert_closed $third
        $first -close
        wait_for_condition 5000 {[dict get [status_of $id] clients] == 1}
        assert_equal PONG [[through $address] ping]
        assert_equal 1 [dict get [status_of $id] refused]
        stop_proxy $id
    }

    test "termination closes the clients and reports the status" -needs [list file $proxy] {
        lassign [start_proxy --listen 0 --threads 2 --status 1] id address
        set c [through $address]
        $c ping
        wait_for_condition 5000 {[regexp -line {^status: .* clients=1 } [spawn_out $id]]}
        set got [stop_proxy $id]
        assert_closed $c
        assert_regexp {status: .*clients=0 .*accepted=1 } [dict get $got out]
    }
}

test "the proxy refuses addresses of other machines, and options that are wrong" -needs [list file $proxy] {
    foreach {arguments pattern} {
        {--server h --listen 0.0.0.0:7000} {not a loopback address.*--allow-remote}
        {--server h --listen [::]:7000} {not a loopback address}
        {--server h --listen 192.0.2.1:7000} {not a loopback address}
        {--listen 7000} {--server HOST:PORT is missing}
        {--server} {value is missing}
        {--server h --threads 0} {not a number from 1}
        {--server h:0} {not a number from 1 to 65535}
        {--server h --listen 70000} {not a number}
        {--server h --unixsocketperm 999} {not an octal mode}
        {--server h --no-such 1} {no such option}
        {--server h --cpus x} {--cpus x}
    } {
        set got [run {*}$::opt(launcher) $proxy {*}$arguments]
        assert_equal 2 [dict get $got code] $arguments
        assert_regexp $pattern [dict get $got err]
    }
    assert_match "*Usage:*--server*" [dict get [run $proxy --help] out]
}

# A server that is killed and comes back.
test "clients of a server that has gone get errors, and replies when it is back" -needs $::on_software_device {
    set port [free_port]
    set dir [file join $unit_dir back]
    file mkdir $dir
    set start [list spawn -in $dir {*}$::opt(launcher) [file join $root src valkey-server] --port $port \
        --rdma-port $port --rdma-bind $::opt(rdma_host) --save "" --loglevel warning]
    set process [{*}$start]
    at_test_end [list catch [list kill_process KILL [spawn_pid $process]]]
    wait_for_condition 10000 {[answers $port]}
    lassign [start_proxy_to $port --listen 0 --threads 2] id address
    for {set round 0} {$round < 3} {incr round} {
        set clients {}
        for {set i 0} {$i < 6} {incr i} {lappend clients [through $address]}
        foreach c $clients {assert_equal PONG [$c ping]}
        foreach c [lrange $clients 0 2] {for {set i 0} {$i < 20} {incr i} {$c -send echo [string repeat x 10000]}}
        kill_process KILL [spawn_pid $process]
        catch {spawn_wait $process}
        foreach c [lrange $clients 3 5] {assert_closed $c}
        foreach c [lrange $clients 0 2] {
            set ended [catch {while 1 {$c -read}}]
            assert_equal 1 $ended
        }
        set c [through $address -deferring 1]
        assert_match "-ERR valkey-rdma-proxy: RDMA: cannot connect to *" [$c -readline]
        assert_closed $c
        set process [{*}$start]
        at_test_end [list catch [list kill_process KILL [spawn_pid $process]]]
        wait_for_condition 10000 {[answers $port]}
        assert_equal PONG [[through $address] ping]
    }
    stop_proxy $id
}
