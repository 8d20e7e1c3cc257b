# INFO: its sections, its fields, and the values of fields.

# The fields of a server without replicas, append-only file or cluster, by section.
set fields_of {
    Server {
        redis_version server_name valkey_version redis_git_sha1 redis_git_dirty redis_build_id server_mode os
        arch_bits monotonic_clock multiplexing_api gcc_version process_id process_supervised run_id tcp_port
        server_time_usec uptime_in_seconds uptime_in_days hz configured_hz lru_clock executable config_file
        io_threads_active availability_zone listener0
    }
    Clients {
        connected_clients cluster_connections maxclients client_recent_max_input_buffer
        client_recent_max_output_buffer blocked_clients tracking_clients pubsub_clients watching_clients
        clients_in_timeout_table total_watched_keys total_blocking_keys total_blocking_keys_on_nokey
    }
    Memory {
        used_memory used_memory_human used_memory_rss used_memory_rss_human used_memory_peak used_memory_peak_human
        used_memory_peak_perc used_memory_overhead used_memory_startup used_memory_dataset used_memory_dataset_perc
        allocator_allocated allocator_active allocator_resident allocator_muzzy total_system_memory
        total_system_memory_human used_memory_lua used_memory_vm_eval used_memory_lua_human used_memory_scripts_eval
        number_of_cached_scripts number_of_functions number_of_libraries used_memory_vm_functions used_memory_vm_total
        used_memory_vm_total_human used_memory_functions used_memory_scripts used_memory_scripts_human maxmemory
        maxmemory_human maxmemory_policy allocator_frag_ratio allocator_frag_bytes allocator_rss_ratio
        allocator_rss_bytes rss_overhead_ratio rss_overhead_bytes mem_fragmentation_ratio mem_fragmentation_bytes
        mem_not_counted_for_evict mem_replication_backlog mem_total_replication_buffers mem_clients_slaves
        mem_clients_normal mem_cluster_links mem_aof_buffer mem_allocator mem_overhead_db_hashtable_rehashing
        active_defrag_running lazyfree_pending_objects lazyfreed_objects
    }
    Persistence {
        loading async_loading current_cow_peak current_cow_size current_cow_size_age current_fork_perc
        current_save_keys_processed current_save_keys_total rdb_changes_since_last_save rdb_bgsave_in_progress
        rdb_last_save_time rdb_last_bgsave_status rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec rdb_saves
        rdb_last_cow_size rdb_last_load_keys_expired rdb_last_load_keys_loaded aof_enabled aof_rewrite_in_progress
        aof_rewrite_scheduled aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_bgrewrite_status
        aof_rewrites aof_rewrites_consecutive_failures aof_last_write_status aof_last_cow_size module_fork_in_progress
        module_fork_last_cow_size
    }
    Stats {
        total_connections_received total_commands_processed instantaneous_ops_per_sec total_net_input_bytes
        total_net_output_bytes total_net_repl_input_bytes total_net_repl_output_bytes instantaneous_input_kbps
        instantaneous_output_kbps instantaneous_input_repl_kbps instantaneous_output_repl_kbps rejected_connections
        sync_full sync_partial_ok sync_partial_err expired_keys expired_stale_perc expired_time_cap_reached_count
        expire_cycle_cpu_milliseconds evicted_keys evicted_clients evicted_scripts total_eviction_exceeded_time
        current_eviction_exceeded_time keyspace_hits keyspace_misses pubsub_channels pubsub_patterns
        pubsubshard_channels latest_fork_usec total_forks migrate_cached_sockets slave_expires_tracked_keys
        active_defrag_hits active_defrag_misses active_defrag_key_hits active_defrag_key_misses
        total_active_defrag_time current_active_defrag_time tracking_total_keys tracking_total_items
        tracking_total_prefixes unexpected_error_replies total_error_replies dump_payload_sanitizations
        total_reads_processed total_writes_processed io_threaded_reads_processed io_threaded_writes_processed
        io_threaded_freed_objects io_threaded_poll_processed io_threaded_total_prefetch_batches
        io_threaded_total_prefetch_entries client_query_buffer_limit_disconnections
        client_output_buffer_limit_disconnections reply_buffer_shrinks reply_buffer_expands eventloop_cycles
        eventloop_duration_sum eventloop_duration_cmd_sum instantaneous_eventloop_cycles_per_sec
        instantaneous_eventloop_duration_usec acl_access_denied_auth acl_access_denied_cmd acl_access_denied_key
        acl_access_denied_channel
    }
    Replication {
        role connected_slaves replicas_waiting_psync master_failover_state master_replid master_replid2
        master_repl_offset second_repl_offset repl_backlog_active repl_backlog_size repl_backlog_first_byte_offset
        repl_backlog_histlen
    }
    CPU {
        used_cpu_sys used_cpu_user used_cpu_sys_children used_cpu_user_children used_cpu_sys_main_thread
        used_cpu_user_main_thread
    }
    Cluster {
        cluster_enabled
    }
}

# The section headers of a text of INFO.
proc headers {text} {lmap {- h} [regexp -all -inline -line {^# (\w+)\r?$} $text] {set h}}

set default_sections {Server Clients Memory Persistence Stats Replication CPU Modules Errorstats Cluster Keyspace}
set all_sections {Server TLS Clients Memory Persistence Stats Replication CPU Modules Commandstats Errorstats\
    Latencystats Cluster Keyspace}

start_server {tags {info}} {
    test "INFO without arguments gives the default sections in order" {
        assert_equal $default_sections [lsearch -all -inline -not -regexp [headers [r info]] {^(Rdma|RDMA|Blob)$}]
        assert_equal [headers [r info]] [headers [r info default]]
    }

    test "INFO ALL and EVERYTHING add command and latency statistics" {
        foreach name {all everything ALL} {
            set got [lsearch -all -inline -not -regexp [headers [r info $name]] {^(Rdma|RDMA|Blob|Debug)$}]
            # ALL ALL excludes the sections of modules, including the section Modules.
            assert_equal [lsearch -all -inline -not $all_sections Modules] \
                [lsearch -all -inline -not $got Modules] $name
        }
    }

    test "INFO of one section, several, none" {
        assert_equal Server [headers [r info server]]
        assert_equal Server [headers [r info SERVER]]
        assert_same_elements {Server Clients} [headers [r info server clients]]
        assert_equal {Server Clients} [headers [r info clients server]]
        assert_equal Server [headers [r info server server nosuch]]
        assert_typed $ info nosuch
        assert_equal Commandstats [headers [r info commandstats]]
        set both [headers [r info commandstats default]]
        assert_in Commandstats $both
        assert_in Keyspace $both
    }

    test "the form of INFO: CRLF lines, an empty line between sections" {
        set t [r info server clients]
        assert_match "# Server\r\nredis_version:*\r\n\r\n# Clients\r\n*\r\n" $t
        foreach l [split [string trimright $t] \n] {
            assert_equal "\r" [string index "$l\r" [expr {[string length $l] - ([string index $l end] eq "\r")}]]
        }
        assert_equal "# Keyspace\r\n" [r info keyspace]
        set c [new_client -resp 3]
        assert_match "=txt:# Server\r\n*" [$c -typed info server]
    }

    foreach {section names} $fields_of {
        test "INFO [string tolower $section] has its fields" {
            set have [info_dict [r info [string tolower $section]]]
            set missing {}
            foreach n $names {if {![dict exists $have $n]} {lappend missing $n}}
            assert_equal {} $missing
            # Common fields have the order of Valkey.
            assert_equal [list {*}$names] [lmap n [dict keys $have] {if {$n ni $names} continue; set n}]
        }
    }

    test "INFO server shows the name and version of the server" {
        set i [info_dict [r info server]]
        assert_equal 7.2.4 [dict get $i redis_version]
        assert_equal valkey [dict get $i server_name]
        assert_regexp {^\d+\.\d+\.\d+} [dict get $i valkey_version]
        assert_equal standalone [dict get $i server_mode]
        assert_equal 64 [dict get $i arch_bits]
        assert_equal epoll [dict get $i multiplexing_api]
        assert_equal [srv pid] [dict get $i process_id]
        assert_regexp {^[0-9a-f]{40}$} [dict get $i run_id]
        assert_equal [srv port] [dict get $i tcp_port]
        assert_equal [srv conf] [dict get $i config_file]
        assert {[file executable [dict get $i executable]]}
        assert_range [dict get $i uptime_in_seconds] 0 60
        assert_equal 0 [dict get $i uptime_in_days]
        assert_range [expr {[dict get $i server_time_usec] / 1000000 - [clock seconds]}] -2 2
        assert_equal 10 [dict get $i hz]
        assert_equal no [dict get $i process_supervised]
        assert_equal "name=tcp,bind=127.0.0.1,port=[srv port]" [dict get $i listener0]
        assert_match "Linux * *" [dict get $i os]
    }

    test "INFO clients counts" {
        set i [info_dict [r info clients]]
        assert_equal 10000 [dict get $i maxclients]
        set n [dict get $i connected_clients]
        set c [new_client]
        $c ping
        assert_equal [expr {$n + 1}] [info_field clients connected_clients]
        $c -close
        wait_for_condition 3000 {[info_field clients connected_clients] == $n}
    }

    test "INFO memory is consistent" {
        r debug populate 10000 m 100
        set i [info_dict [r info memory]]
        assert_morethan [dict get $i used_memory] 1000000
        assert {[dict get $i used_memory_peak] >= [dict get $i used_memory]}
        assert_morethan [dict get $i used_memory_rss] 1000000
        assert_equal noeviction [dict get $i maxmemory_policy]
        assert_equal 0 [dict get $i maxmemory]
        assert_equal 0B [dict get $i maxmemory_human]
        assert_regexp {^\d+\.\d\dM$} [dict get $i used_memory_human]
        assert_regexp {^\d+\.\d\d%$} [dict get $i used_memory_peak_perc]
        assert_regexp {^\d+\.\d\d$} [dict get $i mem_fragmentation_ratio]
        assert {[dict get $i used_memory] == [dict get $i used_memory_dataset] + [dict get $i used_memory_overhead] ||
                [dict get $i used_memory_dataset] > 0}
        assert_regexp {^\d+\.\d\dG$|^\d+\.\d\dM$} [dict get $i total_system_memory_human]
        r flushall
    }

    test "INFO stats counts commands, connections, bytes and errors" {
        r config resetstat
        set before [info_dict [r info stats]]
        r set a b
        r get a
        r get a
        catch {r nosuch}
        catch {r incr a}
        set after [info_dict [r info stats]]
        assert_equal [expr {[dict get $before total_commands_processed] + 5}] [dict get $after total_commands_processed]
        assert_equal 2 [dict get $after total_error_replies]
        assert_equal 2 [dict get $after keyspace_hits]
        assert_morethan [dict get $after total_net_input_bytes] [dict get $before total_net_input_bytes]
        assert_morethan [dict get $after total_net_output_bytes] [dict get $before total_net_output_bytes]
        assert_morethan [dict get $after total_reads_processed] [dict get $before total_reads_processed]
        assert_morethan [dict get $after eventloop_cycles] [dict get $before eventloop_cycles]
    }

    test "instantaneous figures follow the load" {
        set end [expr {[clock milliseconds] + 5000}]
        while {[clock milliseconds] < $end} {
            for {set i 0} {$i < 200} {incr i} {r ping}
            if {[info_field stats instantaneous_ops_per_sec] > 50} break
        }
        assert_morethan [info_field stats instantaneous_ops_per_sec] 50
        assert_regexp {^\d+\.\d\d$} [info_field stats instantaneous_input_kbps]
    }

    test "INFO commandstats counts calls, rejections and failures by command" {
        r config resetstat
        r set a string
        r get a
        r get a
        catch {r get}
        catch {r incr a}
        catch {r config get}
        r config get maxclients
        set i [info_dict [r info commandstats]]
        assert_regexp {^calls=2,usec=\d+,usec_per_call=\d+\.\d\d,rejected_calls=1,failed_calls=0$} \
            [dict get $i cmdstat_get]
        assert_regexp {^calls=1,usec=\d+,usec_per_call=\d+\.\d\d,rejected_calls=0,failed_calls=1$} \
            [dict get $i cmdstat_incr]
        assert_regexp {^calls=1,usec=\d+,usec_per_call=\d+\.\d\d,rejected_calls=1,failed_calls=0$} \
            [dict get $i cmdstat_config|get]
        assert {![dict exists $i cmdstat_mset]}
    }

    test "INFO errorstats counts errors by their code" {
        r config resetstat
        r set a string
        catch {r incr a}
        catch {r nosuch}
        catch {r select x}
        catch {r auth nosuch x}
        set i [info_dict [r info errorstats]]
        assert_equal count=3 [dict get $i errorstat_ERR]
        assert_equal count=1 [dict get $i errorstat_WRONGPASS]
        other_type l
        catch {r get l}
        assert_equal count=1 [dict get [info_dict [r info errorstats]] errorstat_WRONGTYPE]
    }

    test "INFO latencystats shows the percentiles asked for" {
        r config resetstat
        r set a b
        r get a
        set i [info_dict [r info latencystats]]
        assert_regexp {^p50=\d+\.\d\d\d,p99=\d+\.\d\d\d,p99\.9=\d+\.\d\d\d$} [dict get $i latency_percentiles_usec_get]
        r config set latency-tracking-info-percentiles "10 100"
        assert_regexp {^p10=\d+\.\d\d\d,p100=\d+\.\d\d\d$} \
            [dict get [info_dict [r info latencystats]] latency_percentiles_usec_get]
        r config set latency-tracking-info-percentiles "50 99 99.9"
        r config set latency-tracking no
        assert_equal "" [string trim [lindex [split [r info latencystats] \n] 1]]
        r config set latency-tracking yes
    }

    test "INFO keyspace counts keys and expiries by database" {
        r flushall
        r mset a 1 b 2
        r set c 3 ex 1000
        r select 2
        r set x 1
        r select 0
        set i [info_dict [r info keyspace]]
        assert_regexp {^keys=3,expires=1,avg_ttl=\d+} [dict get $i db0]
        assert_regexp {^keys=1,expires=0,avg_ttl=0} [dict get $i db2]
        assert_equal {db0 db2} [dict keys $i]
        r flushall
        assert_equal {} [info_dict [r info keyspace]]
    }

    test "INFO replication of a lone primary" {
        set i [info_dict [r info replication]]
        assert_equal master [dict get $i role]
        assert_equal 0 [dict get $i connected_slaves]
        assert_equal no-failover [dict get $i master_failover_state]
        assert_regexp {^[0-9a-f]{40}$} [dict get $i master_replid]
        assert_equal [string repeat 0 40] [dict get $i master_replid2]
        assert_equal 0 [dict get $i master_repl_offset]
        assert_equal -1 [dict get $i second_repl_offset]
        assert_equal 0 [dict get $i repl_backlog_active]
        assert_equal 10485760 [dict get $i repl_backlog_size]
    }

    test "INFO persistence of a fresh server" {
        set i [info_dict [r info persistence]]
        foreach {field value} {loading 0 async_loading 0 rdb_bgsave_in_progress 0 rdb_last_bgsave_status ok\
            rdb_last_bgsave_time_sec -1
            rdb_current_bgsave_time_sec -1 rdb_saves 0 aof_enabled 0 aof_rewrite_in_progress 0 \
                aof_last_bgrewrite_status ok
            aof_last_write_status ok aof_rewrites 0} {
            assert_equal $value [dict get $i $field] $field
        }
        assert_range [expr {[clock seconds] - [dict get $i rdb_last_save_time]}] 0 120
    }

    test "rdb_changes_since_last_save counts writes" {
        set n [info_field persistence rdb_changes_since_last_save]
        r set a 1
        r mset b 1 c 2
        r del a b nosuch
        r get c
        assert_equal [expr {$n + 5}] [info_field persistence rdb_changes_since_last_save]
    }

    test "INFO cpu is seconds with microseconds" {
        foreach {f v} [info_dict [r info cpu]] {assert_regexp {^\d+\.\d{6}$} $v $f}
    }

    test "INFO works while the arguments are many" {
        assert_same_elements {Server Clients Memory Stats} \
            [headers [r info server clients memory stats nosuch1 nosuch2]]
    }

    test "INFO debug is shown by its name only" {
        foreach section {default all everything} {assert_not_match "*# Debug*" [r info $section]}
        r ping
        wait_for_condition 5000 {[info_field debug eventloop_duration_cron_sum] > 0}
        foreach field {eventloop_cmd_per_cycle_max eventloop_duration_max} {
            assert_morethan [info_field debug $field] 0 $field
        }
        assert_equal 0 [info_field debug eventloop_duration_aof_sum]
    }

    test "error codes that scripts make up do not crowd out those of the server" {
        r config resetstat
        for {set i 0} {$i < 140} {incr i} {catch {r eval {return redis.error_reply('CODE' .. ARGV[1] .. ' x')} 0 $i}}
        assert_equal count=12 [info_field errorstats errorstat_ERRORSTATS_OVERFLOW]
        catch {r set a b c d}
        assert_equal count=1 [info_field errorstats errorstat_ERR]
        catch {r eval {return redis.error_reply('CODE7 y')} 0}
        assert_equal count=2 [info_field errorstats errorstat_CODE7]
        r config resetstat
    }

    test "memory of hash tables that are being resized" -needs {true {!$::opt(slots)}} {
        r flushall
        r set k0 v
        assert_equal 0 [info_field memory mem_overhead_db_hashtable_rehashing]
        r multi
        for {set i 1} {$i < 8} {incr i} {r set k$i v}
        r info memory
        r memory stats
        lassign [lrange [r exec] end-1 end] memory stats
        assert_range [dict get [info_dict $memory] mem_overhead_db_hashtable_rehashing] 1 64
        assert_range [dict get $stats overhead.db.hashtable.rehashing] 1 64
    }

    test "tot-cmds and COMMANDLOG know the client of commands in scripts" {
        r client setname caller
        regexp {tot-cmds=(\d+)} [r client info] -> before
        r eval {redis.call('ping'); redis.call('ping')} 0
        regexp {tot-cmds=(\d+)} [r client info] -> now
        assert_equal [expr {$before + 4}] $now
        r config set commandlog-execution-slower-than 0
        r eval {redis.call('get', KEYS[1])} 1 k
        r config set commandlog-execution-slower-than -1
        set get [lsearch -inline -index 3 [r commandlog get -1 slow] {get k}]
        assert_equal caller [lindex $get 5]
        assert_not_equal "" [lindex $get 4]
        r client setname ""
    }

    test "the output of a client that exceeds its limit is dropped" {
        set c [new_client]
        r set large [string repeat x 4000000]
        r config set client-output-buffer-limit "normal 100000 0 0" min-string-size-avoid-copy-reply 0
        $c -send get large
        assert_closed $c
        r config set client-output-buffer-limit "normal 0 0 0" min-string-size-avoid-copy-reply 16384
        r del large
    }
}
