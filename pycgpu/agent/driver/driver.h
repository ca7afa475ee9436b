/* SPDX-License-Identifier: GPL-2.0-only */
/* The driver, through the agent's own client. */
#ifndef CGPU_AGENT_DRIVER_H
#define CGPU_AGENT_DRIVER_H

#include "state/door.h"

/* rm.c: the agent's own client, and any file of the driver */
int rm_open(bool newest, char *message);
void rm_close(void);
int rm_ioctl(int fd, uint32_t nr, void *args, uint32_t size);
/* Return: the driver's status, or 0xffff if the ioctl failed. */
uint32_t rm_control(int fd, uint32_t hClient, uint32_t hObject, uint32_t cmd, void *params,
		    uint32_t size);
/* An object of the agent's client. Return: 0, -EIO: the driver refuses. */
int rm_alloc(uint32_t hParent, uint32_t *hObject, uint32_t hClass, void *params);
void rm_free(uint32_t hObject);
/*
 * Lets the agent's client duplicate an object of another client, or ends that. `fd` is a duplicate
 * of that client's file. Return: the driver's status.
 */
uint32_t rm_share_with_agent(int fd, uint32_t hClient, uint32_t hObject, bool revoke);
/* Return: the driver's status. */
uint32_t rm_duplicate(uint32_t hParent, uint32_t hClientSrc, uint32_t hObjectSrc,
		      uint32_t *hObject);
/* Memory without a device, to read. Return: NULL if the driver refuses. */
const void *rm_map(uint32_t hMemory, uint64_t size);
/* A part of a device's memory; `path`: its card's file, or of system memory nvidiactl. */
const void *rm_map_part(uint32_t hDevice, const char *path, uint32_t hMemory, uint64_t offset,
			uint64_t size);
int rm_ctl_fd(void);
/* Descriptors of the agent's client. */
void rm_each_descriptor(void (*tell)(int fd));
uint32_t rm_client(void);
uint32_t rm_device(uint32_t minor);
uint32_t rm_subdevice(uint32_t minor);

/*
 * verify.c: after rm_open(). `adopted`: the tenants of an agent that was satisfied are ours now.
 * Return: 0: the driver is known, or has the newest layouts, as `message` says; -errno.
 */
int verify_driver(bool adopted, char *message);

#endif
