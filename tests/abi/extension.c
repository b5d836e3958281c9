/* SPDX-License-Identifier: Apache-2.0 */
/* extension.c - a shared object that is no NCCL, in the place of a Python package's. */
int extension_answer(void);
int extension_answer(void)
{
    return 42;
}
