/* SPDX-License-Identifier: Apache-2.0 */
/* extension.c - a shared object other than NCCL, installed like one of a Python package. */
int extension_answer(void);
int extension_answer(void)
{
    return 42;
}
