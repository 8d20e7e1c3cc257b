# valkey-server --check-system: its results on machines that are described by files.

proc rdma_is_built {} {string match *rdma* [exec ldd [lindex [auto_execok $::opt(server)] 0]]}
set machine_next 0
# Makes a directory with these files: path, content, …; content "-> target" is a symbolic link. Returns the directory.
proc machine {files} {
    set root [file join $::unit_dir machine[incr ::machine_next]]
    foreach {path content} $files {
        set path [file join $root $path]
        file mkdir [file dirname $path]
        if {[string match "-> *" $content]} {
            file link -symbolic $path [string range $content 3 end]
        } else {
            write_file $path $content\n
        }
    }
    return $root
}
# The results on a machine: {exit-status {name {result text} …}}; result is OK, skipped or WARNING.
proc check_system {files} {
    set got [run {*}[server_command] --check-system [machine $files]]
    assert_equal {} [dict get $got err]
    set found {}
    set name {}
    foreach line [split [string trimright [dict get $got out] \n] \n] {
        if {[regexp {^\[([\w-]+)\]\.\.\.(OK|skipped|WARNING:)(: )?(.*)$} $line -> name result - text]} {
            dict set found $name [list [string trimright $result :] $text]
        } else {
            lassign [dict get $found $name] result text
            dict set found $name [list $result [string trimleft "$text\n$line" \n]]
        }
    }
    return [list [dict get $got code] $found]
}
# The result of one check, whose text matches the pattern.
proc assert_check {files name result {pattern *}} {
    lassign [check_system $files] code found
    assert_equal $result [lindex [dict get $found $name] 0] "$name: $found"
    assert_match $pattern [lindex [dict get $found $name] 1]
    assert_equal [expr {[lsearch -glob [dict values $found] WARNING*] >= 0}] $code $found
}

# A healthy machine without RDMA.
set plain {
    sys/devices/system/clocksource/clocksource0/current_clocksource tsc
    proc/sys/vm/overcommit_memory 1
    sys/kernel/mm/transparent_hugepage/enabled "always \[madvise\] never"
}
# A machine with a RoCE card and without problems.
set dev sys/class/infiniband/mlx5_0
set card [dict merge $plain [subst {
    $dev/node_type "1: CA"
    $dev/ports/1/state "4: ACTIVE"
    $dev/ports/1/rate "100 Gb/sec (4X EDR)"
    $dev/ports/1/link_layer Ethernet
    $dev/ports/1/gids/0 fe80:0000:0000:0000:0242:acff:fe11:0002
    $dev/ports/1/gids/1 fe80:0000:0000:0000:0242:acff:fe11:0002
    $dev/ports/1/gids/2 0000:0000:0000:0000:0000:ffff:c0a8:0105
    $dev/ports/1/gids/3 0000:0000:0000:0000:0000:ffff:c0a8:0105
    $dev/ports/1/gids/4 0000:0000:0000:0000:0000:0000:0000:0000
    $dev/ports/1/gid_attrs/types/0 "IB/RoCE v1"
    $dev/ports/1/gid_attrs/types/1 "RoCE v2"
    $dev/ports/1/gid_attrs/types/2 "IB/RoCE v1"
    $dev/ports/1/gid_attrs/types/3 "RoCE v2"
    $dev/ports/1/gid_attrs/ndevs/0 ens1
    $dev/device/numa_node 1
    $dev/device/msi_irqs/64 msix
    $dev/device/msi_irqs/65 msix
    proc/irq/64/effective_affinity_list 4
    proc/irq/65/effective_affinity_list 5
    sys/class/infiniband_verbs/uverbs0/ibdev mlx5_0
    sys/class/net/ens1/mtu 9000
    sys/module/ib_uverbs/refcnt 1
    sys/module/rdma_ucm/refcnt 1
    dev/infiniband/uverbs0 x
    dev/infiniband/rdma_cm x
    proc/self/limits "Max locked memory         unlimited            unlimited            bytes"
    proc/self/status "Cpus_allowed_list:\\t0-7\\nCapEff:\\t0000000000000000"
    sys/devices/system/cpu/online 0-7
    sys/devices/system/node/node0/cpulist 0-3
    sys/devices/system/node/node1/cpulist 4-7
}]]
proc card {args} {dict merge $::card $args}
# The files of a machine except those whose paths match one of the patterns.
proc without {machine args} {
    foreach pattern $args {
        foreach path [dict keys $machine $pattern] {dict unset machine $path}
    }
    return $machine
}

test "a machine without RDMA has nothing to mend" -needs {ours 1} {
    lassign [check_system $plain] code found
    assert_equal 0 $code $found
    assert_equal {slow-clocksource xen-clocksource overcommit THP} [lrange [dict keys $found] 0 3]
    assert_equal skipped [lindex [dict get $found slow-clocksource] 0]
    foreach name {xen-clocksource overcommit THP} {assert_equal {OK {}} [dict get $found $name] $name}
    foreach name [lrange [dict keys $found] 4 end] {assert_equal skipped [lindex [dict get $found $name] 0] $name}
}

test "settings that harm any server are named with the command that mends them" -needs {ours 1} {
    assert_check [dict replace $plain proc/sys/vm/overcommit_memory 0] overcommit WARNING \
        "*sysctl vm.overcommit_memory=1*"
    assert_check [dict replace $plain sys/kernel/mm/transparent_hugepage/enabled "\[always\] madvise never"] THP \
        WARNING "*echo madvise >*"
    assert_check [dict replace $plain sys/devices/system/clocksource/clocksource0/current_clocksource xen] \
        xen-clocksource WARNING "*echo tsc >*"
    assert_check {} overcommit skipped
}

test "a machine with a card that lacks nothing" -needs {ours 1 true {[rdma_is_built]}} {
    lassign [check_system $card] code found
    assert_equal 0 $code $found
    foreach {name text} {
        rdma-device mlx5_0
        rdma-modules "ib_uverbs, rdma_ucm"
        rdma-access "/dev/infiniband/rdma_cm and 1 device file"
        rdma-memlock "no limit"
        rdma-link "mlx5_0 port 1 is active, 100 Gb/sec (4X EDR)"
        rdma-gid "mlx5_0 port 1 has GID 3, RoCE v2, 192.168.1.5"
        rdma-mtu "mlx5_0 port 1 sends 4096 bytes a packet"
        rdma-numa "mlx5_0 is on node 1: best with --server-cpulist 4-7"
        rdma-interrupts "mlx5_0: 2 on 2 CPUs"
        rdma-huge-pages "transparent huge pages"
    } {
        assert_equal [list OK $text] [dict get $found $name] $name
    }
}

test "what RDMA lacks is named with the command that mends it" -needs {ours 1 true {[rdma_is_built]}} {
    set dev sys/class/infiniband/mlx5_0
    assert_check [card $dev/node_type "4: RNIC"] rdma-device WARNING "mlx5_0 is an iWARP device*enable_roce*"
    assert_check [without $card sys/module/rdma_ucm/*] rdma-modules WARNING \
        "The kernel module rdma_ucm is not loaded. Run 'modprobe rdma_ucm'*"
    assert_check [without $card dev/infiniband/uverbs0] rdma-access WARNING \
        "/dev/infiniband/uverbs0 is missing. Install rdma-core*"
    foreach {limit result} {8388608 WARNING 65536 WARNING 1073741824 WARNING 2147483648 OK} {
        assert_check [card proc/self/limits "Max locked memory         $limit              $limit              bytes"] \
            rdma-memlock $result
    }
    assert_check [card proc/self/limits "Max locked memory         8388608              8388608              bytes"] \
        rdma-memlock WARNING \
        "The limit of locked memory is 8192 KiB.*'ulimit -l unlimited'*LimitMEMLOCK=infinity*"
    assert_check [card proc/self/limits "Max locked memory         65536 65536 bytes" proc/self/status \
        "CapEff:\t0000000000004000"] rdma-memlock OK \
        "*capability IPC_LOCK"
    assert_check [card $dev/ports/1/state "1: DOWN"] rdma-link WARNING \
        "The link of mlx5_0 port 1 is DOWN. Run 'ip link set dev ens1 up'*"
    assert_check [card $dev/ports/1/state "2: INIT" $dev/ports/1/link_layer InfiniBand] rdma-link WARNING \
        "*is INIT.*opensm*"
    assert_check [card $dev/ports/1/state "1: DOWN" $dev/ports/1/link_layer InfiniBand] rdma-link WARNING \
        "*'ibstat mlx5_0'*"
    assert_check [without $card $dev/ports/1/gids/2 $dev/ports/1/gids/3 $dev/ports/1/gids/4] rdma-gid WARNING \
        "*has no IP address*'ip addr add ADDRESS/24 dev ens1'*"
    assert_check [card $dev/ports/1/gid_attrs/types/3 "IB/RoCE v1"] rdma-gid WARNING "*GIDs of RoCE v1 only*"
    assert_check [card sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode "IB/RoCE v1"] rdma-gid WARNING \
        "*cma_roce_mode -d mlx5_0 -p 1 -m 2*"
    assert_check [card sys/class/net/ens1/mtu 1500] rdma-mtu WARNING \
        "*1024 bytes a packet instead of 4096*MTU of ens1 is 1500*'ip link set dev ens1 mtu 4200'*"
    assert_check [card sys/class/net/ens1/mtu 4191] rdma-mtu WARNING "*2048 bytes*"
    assert_check [card sys/class/net/ens1/mtu 4192] rdma-mtu OK
    assert_check [card proc/self/status "Cpus_allowed_list:\t0-3"] rdma-numa WARNING \
        "*node 1*CPUs 0-3*'taskset -c 4-7 valkey-server ...'*"
    assert_check [card proc/self/status "Cpus_allowed_list:\t4-5"] rdma-numa OK "mlx5_0 is on node 1"
    assert_check [card proc/irq/65/effective_affinity_list 4] rdma-interrupts WARNING \
        "All 2 interrupts of mlx5_0 are served by one CPU.*pin-rdma*"
    assert_check [card proc/irq/64/effective_affinity_list 0 proc/irq/65/effective_affinity_list 1] rdma-interrupts \
        WARNING "*NUMA node 1 (4-7)*pin-rdma*"
    set never {sys/kernel/mm/transparent_hugepage/enabled "always madvise \[never\]"}
    assert_check [card {*}$never] rdma-huge-pages WARNING "*vm.nr_hugepages=512*"
    assert_check [card {*}$never sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages 512] rdma-huge-pages OK \
        "512 of 2 MiB are reserved"
}

test "InfiniBand needs no GID of RoCE and no MTU of an interface" -needs {ours 1 true {[rdma_is_built]}} {
    set infiniband [card sys/class/infiniband/mlx5_0/ports/1/link_layer InfiniBand]
    assert_check $infiniband rdma-gid skipped
    assert_check $infiniband rdma-mtu skipped
    assert_check $infiniband rdma-link OK
}

test "soft-RoCE has no PCI device, node or interrupts" -needs {ours 1 true {[rdma_is_built]}} {
    set soft [without $card sys/class/infiniband/mlx5_0/device/* proc/irq/*]
    assert_check $soft rdma-numa skipped "*one NUMA node*"
    assert_check $soft rdma-interrupts skipped "*no interrupts of their own*"
    lassign [check_system $soft] code found
    assert_equal 0 $code
}

test "files of nonsense are no harm" -needs {ours 1} {
    set long [string repeat x 10000]
    foreach value [list {} $long -1 99999999999999999999 "\x00\xff" "0-999999999"] {
        set damaged {}
        foreach {path content} $card {dict set damaged $path $value}
        lassign [check_system $damaged] code found
        assert {$code in {0 1}} "$code: $found"
    }
}

test "this machine is checked without a directory" -needs {ours 1} {
    set got [run {*}[server_command] --check-system]
    assert {[dict get $got code] in {0 1}} $got
    assert_match "\\\[slow-clocksource\\\]...*\\\[THP\\\]...*\\\[rdma-device\\\]...*" [dict get $got out]
    assert_equal {} [dict get $got err]
}

test "the genuine server finds the same on this machine" -needs {ours 1 true {[info exists ::env(GENUINE_VALKEY)]}} {
    set results {}
    foreach program [list $::opt(server) [file join $::env(GENUINE_VALKEY) valkey-server]] {
        set got [run $program --check-system]
        lappend results [regexp -all -inline -line {^\[(?:xen-clocksource|overcommit|THP)\]\.\.\.\w+} \
            [dict get $got out]]
    }
    assert_equal [lindex $results 1] [lindex $results 0]
}
