# cython: language_level=3
"""Relocatable objects in memory."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t


cdef extern from "<elf.h>" nogil:
    ctypedef struct Elf64_Ehdr:
        unsigned char *e_ident
        uint16_t e_type
        uint16_t e_machine
        uint64_t e_shoff
        uint16_t e_shentsize
        uint16_t e_shnum

    ctypedef struct Elf64_Shdr:
        uint32_t sh_type
        uint64_t sh_flags
        uint64_t sh_offset
        uint64_t sh_size
        uint32_t sh_link
        uint32_t sh_info
        uint64_t sh_addralign
        uint64_t sh_entsize

    ctypedef struct Elf64_Sym:
        uint32_t st_name
        unsigned char st_info
        uint16_t st_shndx
        uint64_t st_value

    ctypedef struct Elf64_Rela:
        uint64_t r_offset
        uint64_t r_info
        int64_t r_addend

cdef class CodeImage:
    cdef char *base  # the mapping, owned
    cdef size_t size  # its bytes
    cdef readonly dict functions  # name -> address
    cdef bytes data  # the object, while it is read
    cdef list sections  # where its section headers stand, while it is read
    cdef dict offsets  # section -> place in the mapping, while it is read
    cdef dict slots  # symbol -> slot, while it is read
    cdef size_t symbol_table  # section of the symbols
    cdef size_t n_symbols  # entries in it
    cdef uint64_t symbols_at  # where they stand in the object
    cdef uint64_t names_at  # where their names stand
    cdef uint64_t names_size  # bytes of names
    cdef uint64_t slots_at  # place of the slots in the mapping
    cdef object __weakref__  # lazily made list of weak references

    cdef const char *at(self, uint64_t offset, uint64_t length) except NULL
    cdef int section(self, size_t number, Elf64_Shdr *into) except -1
    cdef int symbol(self, size_t number, Elf64_Sym *into) except -1
    cdef str name_of(self, Elf64_Sym *symbol)
    cdef int read_sections(self) except -1
    cdef int place_sections(self) except -1
    cdef dict slots_needed(self)
    cdef int relocation(self, Elf64_Shdr *section, size_t k, Elf64_Rela *into) except -1
    cdef int fill_slots(self) except -1
    cdef size_t address_of(self, Elf64_Sym *symbol) except 0
    cdef int relocate(self) except -1
    cdef int apply(self, Elf64_Rela *entry, char *section, uint64_t size) except -1
    cdef int read_functions(self) except -1
