# SPDX-License-Identifier: GPL-2.0-only
# For Kbuild files: what the kernel's headers have, found out by compiling. A number says nothing of
# a kernel whose distribution has brought newer parts back.
#
# Each source in compat/probes compiles where the kernel has what it is named after, and have.h then
# defines CGPU_HAVE_<NAME>. They are built as the objects are, beside each other, in the same make.
#
# cgpu_compat: the path of this folder from the Kbuild file's. cgpu_probes: those that are asked.
# cgpu_have: have.h, beside the file that includes it.
cgpu_probes_src := $(src)/$(cgpu_compat)/probes

# Without the flags of a part of a module; what a compiler says is kept for whoever wonders.
quiet_cmd_cgpu_probe = PROBE   $@
      cmd_cgpu_probe = : $(KERNELRELEASE); \
	if $(CC) $(c_flags) -c -o $@.o $< >$@.log 2>&1; then \
		printf '\043define CGPU_HAVE_%s\n' $$(echo $* | tr a-z A-Z); \
	else \
		printf '/* without %s */\n' $*; \
	fi >$@; rm -f $@.o $(depfile)

$(addprefix $(obj)/,$(addsuffix .have,$(cgpu_probes))): $(obj)/%.have: $(cgpu_probes_src)/%.c FORCE
	$(call if_changed,cgpu_probe)

quiet_cmd_cgpu_have = GEN     $@
      cmd_cgpu_have = cat $(filter %.have,$^) >$@

$(obj)/$(cgpu_have): $(addprefix $(obj)/,$(addsuffix .have,$(cgpu_probes))) FORCE
	$(call if_changed,cgpu_have)

targets += $(cgpu_have) $(addsuffix .have,$(cgpu_probes))
clean-files += $(cgpu_have) *.have *.have.log
