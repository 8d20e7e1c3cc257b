/* geo.h: functions shared by geo.c and geo_search.c. */
#pragma once
#include "commands/geo/geohash.h"
#include "server/command/command.h"

/* Read arguments; false: replied with an error. */
bool argument_point(struct call *call, int index, struct geo_point *point); /* longitude and latitude */
bool argument_unit(struct call *call, int index, double *meters);           /* the unit in meters */
void reply_distance(struct reply *reply, double distance);
void reply_point(struct reply *reply, struct geo_point point);
