# The command line tools when the device or the server fails: a clear error and exit code 1, and never waiting for ever.
# On the software device alone. seconds: 10

proc tool_under {faults name args} {
    run -timeout 30 env {*}$faults {*}$::opt(launcher) [file join $::root src $name] --rdma -h $::opt(rdma_host) \
        -p [srv port] {*}$args
}
# It ended with code 1 and said something about it, in a line or a few.
proc assert_clear_failure {got pattern} {
    set text [string trim [dict get $got out][dict get $got err]]
    assert_equal 1 [dict get $got code] $text
    assert_regexp $pattern $text
    assert_lessthan [llength [split $text \n]] 20
}

set connecting {
    "no device is there" SOFTRDMA_DEVICES=0 {no RDMA device was found}
    "no event channel can be had" SOFTRDMA_FAULTS=create_event_channel:fail=EMFILE {Too many open files}
    "no identifier can be had" SOFTRDMA_FAULTS=create_id:fail=ENOMEM {Cannot allocate memory}
    "the address cannot be resolved" SOFTRDMA_FAULTS=resolve_addr:fail=EINVAL {Invalid argument}
    "nobody answers for the address" SOFTRDMA_FAULTS=resolve_addr:unreachable {No route to host|timed out}
    "there is no route" SOFTRDMA_FAULTS=resolve_route:unreachable {No route to host|timed out}
    "no protection domain can be had" SOFTRDMA_FAULTS=alloc_pd:fail=ENOMEM {protection domain}
    "no completion channel can be had" SOFTRDMA_FAULTS=create_channel:fail=EMFILE {completion channel}
    "no completion queue can be had" SOFTRDMA_FAULTS=create_cq:fail=ENOMEM {completion queue}
    "no queue pair can be had" SOFTRDMA_FAULTS=create_qp:fail=ENOMEM {queue pair}
    "no memory can be registered" SOFTRDMA_FAULTS=reg_mr:fail=ENOMEM {cannot register memory}
    "little memory can be locked" SOFTRDMA_MEMLOCK=4096 {locked memory}
    "the request cannot be sent" SOFTRDMA_FAULTS=connect:fail=ENOMEM {Cannot allocate memory}
    "the server cannot be reached" SOFTRDMA_FAULTS=connect:unreachable {No route to host|timed out|unreachable}
    "the request is rejected" SOFTRDMA_FAULTS=connect:reject {refused}
    "the answer is lost" {SOFTRDMA_FAULTS=establish:drop SOFTRDMA_CM_TIMEOUT_MS=300} {timed out|No route}
}

start_server {} {
    foreach {what faults pattern} $connecting {
        test "valkey-cli says so and ends when $what" -needs $::on_software_device {
            set got [tool_under $faults valkey-cli -t 2 ping]
            assert_clear_failure $got $pattern
            assert_match "*Could not connect to Valkey at $::opt(rdma_host):[srv port]*" \
                [dict get $got out][dict get $got err]
        }
    }
    foreach {what faults pattern} $connecting {
        test "valkey-benchmark says so and ends when $what" -needs $::on_software_device {
            assert_clear_failure [tool_under $faults valkey-benchmark -n 100 -c 2 -q -t ping] $pattern
        }
    }

    foreach {what rule pattern} {
        "a message is lost" send:drop,from=20 {retry|timed out}
        "a completion has an error" send:error=REM_ACCESS_ERR,from=20 {remote access error}
        "the send queue takes nothing" post_send:fail=EIO,from=20 {posting to the send queue failed|Input/output error}
    } {
        test "the tools say so and end when $what" -needs $::on_software_device {
            unharmed {
                set benchmark [tool_under SOFTRDMA_FAULTS=$rule valkey-benchmark -n 100000 -c 4 -P 4 -q -t set]
                assert_clear_failure $benchmark $pattern
                set cli [tool_under SOFTRDMA_FAULTS=$rule valkey-cli -r 1000 set k v]
                assert_equal 1 [dict get $cli code]
                assert_regexp (?n)^Error:.*($pattern) [dict get $cli out][dict get $cli err]
            }
        }
    }

    foreach {what rule} {
        "messages are late" send:delay=100-2000,p=20,seed=3
        "receives are missing for a while" send:rnr=20,every=50
        "completions are late" complete:delay=100-3000,p=20,seed=4
        "it looks late for what came" poll:delay=2000,every=50,count=100
    } {
        test "valkey-benchmark ends well though $what" -needs $::on_software_device {
            set got [tool_under SOFTRDMA_FAULTS=$rule valkey-benchmark -n 2000 -c 4 -d 3000 -q -t set,get]
            assert_equal 0 [dict get $got code] [dict get $got out][dict get $got err]
            assert_equal 2 [regexp -all {requests per second} [dict get $got out]]
        }
    }
}

foreach {rule pattern} {
    send:drop,from=2000 {retry counter exceeded}
    send:error=REM_ACCESS_ERR,from=2000 {remote access error}
    post_send:fail=EIO,from=2000 {posting to the send queue failed}
    create_qp:fail=ENOMEM {cannot connect to [^ ]* \(softrdma0\): cannot create a queue pair \(softrdma0\): Cannot\
        allocate memory}
    listen:fail=EADDRINUSE {cannot listen on 127.0.0.1:0 \(softrdma0\): Address already in use}
} {
    test "both ends in one process: transport-bench says so and ends under $rule" -needs $::on_software_device {
        set got [run -timeout 20 env SOFTRDMA_FAULTS=$rule {*}$::opt(launcher) [tool transport-bench] rdma \
            127.0.0.1 2 64 5000]
        assert_clear_failure $got $pattern
    }
}

foreach {what rule} {
    "in the middle of a message" payload:kill,nth=300
    "before a message" send:kill,nth=300
    "while it accepts" accept:kill,nth=2
    "when it takes a request" request:kill,nth=2
} {
    start_server [list env SOFTRDMA_FAULTS=$rule no_rdma 1 overrides \
        [list rdma-bind $::opt(rdma_host) rdma-port [set port [free_port]] port $port]] {
        test "the tools say so and end when the server dies $what" -needs $::on_software_device {
            expect_server_exit
            set got [tool_under {} valkey-benchmark -n 100000 -c 4 -q -t set]
            assert_clear_failure $got {(?i)closed|reset|timed out|refused|flushed|could not connect}
            set got [tool_under {} valkey-cli -t 2 ping]
            assert_clear_failure $got {Could not connect}
        }
    }
}
