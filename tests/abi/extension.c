/* SPDX-License-Identifier: Apache-2.0 */
/* extension.c - a shared object other than NCCL, in the place of a Python package's. */
int extension_answer(void);
int extension_answer(void)
{
    return 42;
}
