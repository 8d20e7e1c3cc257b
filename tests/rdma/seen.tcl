# What an operator sees of the transport: INFO rdma, CLIENT LIST, LATENCY, the log.
# seconds: 2

start_server [with_faults {late event:delay=120000,op=RDMA_CM_EVENT_ESTABLISHED} overrides {loglevel verbose}] {
    test "every field of INFO rdma is explained in docs/operating.md, and every field there is one of INFO's" {
        r ping
        set fields [dict keys [info_dict [r info rdma]]]
        set guide [file_bytes [file join $::root docs operating.md]]
        assert_equal 1 [regexp {### INFO rdma\n(.*?)\n## } $guide -> section]
        set explained {}
        foreach {- cell} [regexp -all -inline -line {^\| (`[^|]*`) \|} $section] {
            foreach {- name} [regexp -all -inline {`(\w+)`} $cell] {lappend explained $name}
        }
        assert_same_elements $explained $fields
    }

    test "INFO rdma names the port in use" {
        set i [info_dict [r info rdma]]
        assert_regexp {^\w+$} [dict get $i rdma_device]
        assert_morethan [dict get $i rdma_device_port] 0
        assert_regexp {^[0-9a-f:.]+$} [dict get $i rdma_gid]
        assert_in [dict get $i rdma_mtu] {256 512 1024 2048 4096}
        if {[software_device]} {
            assert_equal "softrdma0 ::ffff:127.0.0.1" "[dict get $i rdma_device] [dict get $i rdma_gid]"
        }
    }

    test "INFO rdma counts connections, bytes and messages" {
        set before [info_dict [r info rdma]]
        set c [new_client]
        assert_equal [string repeat x 5000] [$c echo [string repeat x 5000]]
        set after [info_dict [r info rdma]]
        foreach {field least} {rdma_connections 1 rdma_queue_pairs 1 rdma_accepted_connections 1 rdma_net_input_bytes\
            5000 rdma_net_output_bytes 5000
            rdma_messages_in 1 rdma_messages_out 1 rdma_control_messages_in 1 rdma_control_messages_out 1 \
                rdma_work_requests 2 rdma_doorbells 2 rdma_polls 1} {
            assert {[dict get $after $field] >= [dict get $before $field] + $least} $field
        }
        assert_range [dict get $after rdma_completions_per_poll] 1 128
        assert_range [dict get $after rdma_inline_share] 0 1
    }

    test "CLIENT LIST ends with the transport's fields, in their order" -needs {true {$::opt(io_threads) <= 1}} {
        set c [new_client]
        set line [$c client info]
        assert_regexp { tot-cmds=\d+ transport=rdma(?:-tls)? device=\w+ qp=\d+\
            rx=\d+ rx-free=\d+ tx=\d+ tx-free=\d+ queued=\d+\
            rdma-features=\S+(?: tls=\S+ cipher=\S+)?\s*$} $line
        set f [client_fields $line]
        assert_morethan [dict get $f qp] 0
        assert {[dict get $f rx-free] <= [dict get $f rx] && [dict get $f tx-free] <= [dict get $f tx] &&\
            [dict get $f tx] > 0}
        assert_regexp { tot-cmds=\d+ transport=tcp\s*$} [[new_client -tcp 1] client info]
    }

    test "the log shows the listeners and the connections that begin and end" {
        set from [log_size]
        set c [new_client]
        regexp {127.0.0.1:\d+|addr=\S+} [$c client info] peer
        set peer [string map {addr= ""} $peer]
        $c -close
        wait_for_log "RDMA: accepted $peer (" $from
        wait_for_log "RDMA: $peer (" $from
        assert_regexp "RDMA: $peer \\(\\w+, GID \[0-9a-f:.]+\\) disconnected" [log_text $from]
        assert_regexp "RDMA: listening on $::opt(rdma_host):[srv port] \\(\\w+, GID \[0-9a-f:.]+\\)" [log_text]
    }

    test "LATENCY has an event for what waited for a client's buffer" {
        set t [new_client -tcp 1]
        $t config set latency-monitor-threshold 30
        at_test_end [list [new_client -tcp 1] config set latency-monitor-threshold 0]
        $t set unread [string repeat u 500000]
        set before [info_field rdma rdma_stalled_usec]
        set stalls [info_field rdma rdma_stalls_on_full_peer_buffer]
        lassign [hold unread 1] pid chan
        wait_for_condition 5000 {[info_field rdma rdma_stalls_on_full_peer_buffer] > $stalls}
        after 40
        kill_process KILL $pid
        wait_for_condition 5000 {[string match "*rdma-stall*" [$t latency latest]]}
        assert_morethan [info_field rdma rdma_stalled_usec] [expr {$before + 30000}]
    }

    test "LATENCY has an event for connections that are slow to establish" -needs $::on_software_device {
        set t [new_client -tcp 1]
        $t config set latency-monitor-threshold 100
        at_test_end [list [new_client -tcp 1] config set latency-monitor-threshold 0]
        fault late
        [new_client] ping
        fault_end late
        wait_for_condition 5000 {[llength [$t latency history rdma-connect]] > 0}
        assert_morethan [lindex [$t latency history rdma-connect] end 1] 99
    }

    test "DEBUG RDMA counts and trims" {
        set t [new_client -tcp 1]
        assert_equal OK [$t debug rdma trim]
        wait_for_condition 5000 {[info_field rdma rdma_connections] == [dict get [$t debug rdma resources] connections]}
        assert_error_like "ERR unknown subcommand or wrong number of arguments for 'rdma'*" {$t debug rdma nothing}
        assert_error_like "ERR unknown subcommand or wrong number of arguments for 'rdma'*" \
            {$t debug rdma resources now}
        assert_match "*RDMA RESOURCES*RDMA TRIM*" [$t debug help]
    }
}
