# Properties of all data commands: replies in RESP2 and RESP3, for existing and missing keys; replies for other types;
# keyspace events and their class; propagation. Each command has a row in command-table/, each row is a test, and a
# command of the server without a row is a failure. (commands.tcl tests that each command rejects a wrong number of
# arguments. After a complete run the runner checks that some suite has sent each token of their syntax.) seconds: 6

foreach file [lsort [glob -directory [file join [file dirname $::unit_file] command-table] *.tcl]] {source $file}
set ::wrong_type "-WRONGTYPE Operation against a key holding the wrong kind of value"

# The names of the commands of these groups; a container is replaced by its subcommands.
proc commands_of_groups {groups} {
    set names {}
    dict for {name docs} [r command docs] {
        if {[dict get $docs group] ni $groups} continue
        if {[dict exists $docs subcommands]} {
            foreach sub [dict keys [dict get $docs subcommands]] {if {![string match *|help $sub]} {lappend names $sub}}
        } else {
            lappend names $name
        }
    }
    return $names
}

# {command word} for each literal word of the syntax.
proc syntax_words {name docs} {
    set words {}
    if {[dict exists $docs arguments]} {
        foreach argument [dict get $docs arguments] {
            if {[dict exists $argument token] && [dict get $argument token] ne ""} {
                lappend words [list $name [string tolower [dict get $argument token]]]
            }
            lappend words {*}[syntax_words $name $argument]
        }
    }
    if {[dict exists $docs subcommands]} {
        dict for {sub subdocs} [dict get $docs subcommands] {
            lappend words [split $sub |] {*}[syntax_words $name $subdocs]
        }
    }
    return $words
}

# `gives` or `like` of a row, in either protocol; NAME is gives or missing.
proc assert_row_reply {row name protocol got} {
    foreach key [expr {$protocol == 3 ? [list ${name}3 $name] : [list $name]}] {
        if {[dict exists $row $key]} {
            set want [typed_form [dict get $row $key]]
            if {$got ne $want} {fail "expected the reply [shown $want], got [shown $got] (RESP$protocol, $name)"}
            return
        }
        set pattern [string map {gives like} $key]
        if {[dict exists $row $pattern]} {return [assert_match [dict get $row $pattern] $got "RESP$protocol"]}
    }
    error "the row does not tell what it $name"
}

proc assert_row_types {row} {
    foreach {key type got} [row_with_types $row] {
        set takes [row_takes $row $key]
        set refused [expr {$got eq $::wrong_type || ([dict exists $row refuses] && $got eq [dict get $row refuses])}]
        if {[dict get $row group] eq "hyperloglog" && $type eq "string"} {
            set refused [expr {$got eq "-WRONGTYPE Key is not a valid HyperLogLog string value."}]
        }
        set good [expr {$takes eq "any" || $type in $takes}]
        if {$good == $refused} {fail "with $key made a $type: [shown $got]"}
    }
}

proc assert_row_events {row listener} {
    set classes [lsort -unique [lmap event [dict get $row events] {lindex $event 0}]]
    set others [lmap class $::row_classes {if {$class in $classes} continue; set class}]
    assert_equal [lmap event [dict get $row events] {lrange $event 1 end}] \
        [row_events $row $listener $::row_classes] "events"
    assert_equal {} [row_events $row $listener $others] "events of other classes"
}

proc assert_row_repeats {row follower writes} {
    set want [expr {[dict exists $row repeats] ? [dict get $row repeats] : $writes ? [list [dict get $row call]] : {}}]
    set got [row_repeats $row $follower]
    set same [expr {[llength $want] == [llength $got]}]
    foreach pattern $want command $got {
        if {[llength $pattern] != [llength $command]} {set same 0}
        foreach p $pattern word $command {if {$word ne $p && ![string match $p $word]} {set same 0}}
    }
    if {!$same} {fail "expected [shown $want] to be propagated, got [shown $got]"}
}

start_server {tags {command-table}} {
    test "every command on data has a row, and every row is about one" {
        set known [lsort -unique [lmap name [dict keys $::row] {row_command $name}]]
        set there [commands_of_groups [dict keys $::row_type_of]]
        assert_equal {} [lmap name $there {if {$name in $known} continue; set name}] "commands without a row"
        foreach name $known {assert {[regexp {^[a-z_]+(\|[a-z]+)?$} $name]} "a row is called $name"}
    }

    test "the runner knows the tokens of the commands" {
        dict for {name docs} [r command docs] {
            if {[dict get $docs group] in [dict keys $::row_type_of]} {tell syntax {*}[syntax_words $name $docs]}
        }
    }

    set ::follower [new_follower]
    set ::listener [new_listener]
    set ::resp3 [new_client -resp 3]
    dict for {name row} $::row {
        test "[string toupper $name]" -needs [concat [list command [row_command $name]] [dict get $row needs]] {
            set writes [expr {"write" in [lindex [r command info [row_command $name]] 0 2]}]
            with_config [expr {[dict exists $row config] ? [dict get $row config] : {notify-keyspace-events ""}}] {
                foreach {client protocol} [list r 2 $::resp3 3] {
                    row_prepare $row
                    assert_row_reply $row gives $protocol [$client -typed {*}[dict get $row call]]
                    if {![dict exists $row missing]} continue
                    row_prepare $row 0
                    assert_row_reply $row missing $protocol [$client -typed {*}[dict get $row call]]
                }
                assert_row_types $row
                assert_row_events $row $::listener
                assert_row_repeats $row $::follower $writes
            }
        }
    }
}
