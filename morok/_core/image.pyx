"""Relocatable ELF objects in memory: what a code generator gives, ready to run, without a linker.

An object's allocated sections are laid out behind one another in a mapping of its own, followed by
one slot for each symbol that is somewhere else:

    jmp *[rip + 2]; int3; int3    how a call reaches it
    .quad ADDRESS                 how an address is read

Nothing in an object is believed before it was checked, so that a damaged one is an error and never
code that runs. The mapping is writable while it is filled and executable afterwards, never both.
"""

from libc.stddef cimport size_t
from libc.stdint cimport (
    INT32_MAX,
    INT32_MIN,
    int32_t,
    int64_t,
    uint32_t,
    uint64_t,
)
from libc.string cimport memchr, memcmp, memcpy

from morok.errors import DeviceError


cdef extern from * nogil:
    """
    #if defined(__x86_64__)
    enum { HERE = 62 };
    #else
    enum { HERE = 0 };
    #endif
    """
    int HERE  # the machine number of objects that can be loaded, 0 if there are none

cdef extern from "<elf.h>" nogil:
    enum:
        ET_REL
        SHT_SYMTAB
        SHT_STRTAB
        SHT_RELA
        SHT_REL
        SHT_NOBITS
        SHF_WRITE
        SHF_ALLOC
        SHF_TLS
        SHN_UNDEF
        STB_GLOBAL
        R_X86_64_64
        R_X86_64_PC32
        R_X86_64_PLT32
        R_X86_64_GOTPCREL
        R_X86_64_32
        R_X86_64_32S
        R_X86_64_PC64
        R_X86_64_GOTPCRELX
        R_X86_64_REX_GOTPCRELX

cdef extern from "<sys/mman.h>" nogil:
    void *MAP_FAILED
    int PROT_READ, PROT_WRITE, PROT_EXEC, MAP_PRIVATE, MAP_ANONYMOUS
    void *mmap(void *address, size_t length, int protection, int flags, int fd, long offset)
    int mprotect(void *address, size_t length, int protection)
    int munmap(void *address, size_t length)

cdef extern from "<dlfcn.h>" nogil:
    int RTLD_NOW
    void *RTLD_DEFAULT
    void *dlopen(const char *path, int flags)
    void *dlsym(void *handle, const char *name)

cdef enum:
    PAGE = 4096
    SLOT = 16  # bytes
    MAX_SIZE = 1 << 28  # an object that claims to be larger is damaged

# What the code of a kernel may call: nothing else is looked for.
cdef frozenset LIBRARY = frozenset({"memcpy", "memset", "memmove", "fmod", "fmodf"})
cdef dict found = {}  # their addresses, as far as they were asked for


cdef size_t library_function(str name) except? 0:
    """The address of a function kernels may call; 0 if there is none of that name."""
    cdef void *address
    cdef void *math
    cdef bytes text
    if name in found:
        return found[name]
    if name not in LIBRARY:
        return 0
    text = name.encode()
    address = dlsym(RTLD_DEFAULT, text)
    if address == NULL:
        math = dlopen(b"libm.so.6", RTLD_NOW)  # never closed: code goes on calling it
        address = dlsym(math, text) if math != NULL else NULL
    if address != NULL:
        found[name] = <size_t>address
    return <size_t>address


def is_relocatable(bytes data not None):
    """Whether these bytes claim to be a relocatable ELF object."""
    cdef Elf64_Ehdr head
    if len(data) < <Py_ssize_t>sizeof(Elf64_Ehdr):
        return False
    memcpy(&head, <const char *>data, sizeof(Elf64_Ehdr))
    return memcmp(&head, b"\x7fELF\x02", 5) == 0 and head.e_type == ET_REL


cdef class CodeImage:
    """The code of one object; see the stub."""

    def __init__(self, bytes data not None):
        if self.base != NULL:
            raise TypeError("a CodeImage is loaded once")
        self.data = data
        try:
            self.read_sections()
            self.place_sections()
            self.relocate()
            self.read_functions()
            if mprotect(self.base, self.size, PROT_READ | PROT_EXEC):
                raise DeviceError("the system lets no code be made executable")
        finally:
            self.data = self.sections = self.offsets = self.slots = None

    # Owns the mapping. A Library holds its image, and kernels their Library.
    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base, self.size)

    cdef const char *at(self, uint64_t offset, uint64_t length) except NULL:
        """Where these bytes of the object stand."""
        cdef uint64_t size = len(self.data)
        if offset > size or length > size - offset:
            raise DeviceError("the object is cut off")
        return <const char *>self.data + offset

    cdef int section(self, size_t number, Elf64_Shdr *into) except -1:
        if number >= <size_t>len(self.sections):
            raise DeviceError("the object names a section it does not have")
        memcpy(into, <const char *>self.data + <size_t>self.sections[number], sizeof(Elf64_Shdr))
        return 0

    cdef int read_sections(self) except -1:
        """Finds the section headers and the one table of symbols."""
        cdef Elf64_Ehdr head
        cdef Elf64_Shdr section
        memcpy(&head, self.at(0, sizeof(Elf64_Ehdr)), sizeof(Elf64_Ehdr))
        if not is_relocatable(self.data) or HERE == 0 or head.e_machine != HERE:
            raise DeviceError("it is no relocatable object of this machine")
        if head.e_shentsize != sizeof(Elf64_Shdr):
            raise DeviceError("the object's section headers have another size")
        self.at(head.e_shoff, head.e_shnum * sizeof(Elf64_Shdr))
        self.sections = [head.e_shoff + i * sizeof(Elf64_Shdr) for i in range(head.e_shnum)]
        self.symbol_table = 0
        for i in range(head.e_shnum):
            self.section(i, &section)
            if section.sh_type == SHT_SYMTAB:
                self.symbol_table = i
            if section.sh_type != SHT_NOBITS:
                self.at(section.sh_offset, section.sh_size)
        if self.symbol_table == 0:
            raise DeviceError("the object has no symbols")
        self.section(self.symbol_table, &section)
        self.n_symbols = section.sh_size // sizeof(Elf64_Sym)
        self.symbols_at = section.sh_offset
        self.section(section.sh_link, &section)
        if section.sh_type != SHT_STRTAB:
            raise DeviceError("the object's symbols have no names")
        self.names_at, self.names_size = section.sh_offset, section.sh_size
        return 0

    cdef int symbol(self, size_t number, Elf64_Sym *into) except -1:
        if number >= self.n_symbols:
            raise DeviceError("the object names a symbol it does not have")
        memcpy(
            into,
            <const char *>self.data + self.symbols_at + number * sizeof(Elf64_Sym),
            sizeof(Elf64_Sym),
        )
        return 0

    cdef str name_of(self, Elf64_Sym *symbol):
        cdef const char *start
        cdef const char *end
        if symbol.st_name >= self.names_size:
            raise DeviceError("the object's names are cut off")
        start = <const char *>self.data + self.names_at + symbol.st_name
        end = <const char *>memchr(start, 0, self.names_size - symbol.st_name)
        if end == NULL:
            raise DeviceError("the object's names are cut off")
        return start[: end - start].decode("ascii", errors="replace")

    cdef int place_sections(self) except -1:
        """Maps memory for the allocated sections and the slots, and copies the sections."""
        cdef Elf64_Shdr section
        cdef uint64_t size = 0
        cdef uint64_t align
        self.offsets = {}
        for i in range(len(self.sections)):
            self.section(i, &section)
            if not section.sh_flags & SHF_ALLOC or section.sh_size == 0:
                continue
            if section.sh_flags & (SHF_WRITE | SHF_TLS):
                raise DeviceError("the object has variables of its own")
            align = section.sh_addralign if section.sh_addralign else 1
            if align > PAGE or align & (align - 1) or section.sh_size > MAX_SIZE:
                raise DeviceError("the object's sections are damaged")
            size = (size + align - 1) // align * align
            self.offsets[i] = size
            size += section.sh_size
            if size > MAX_SIZE:
                raise DeviceError("the object's sections are damaged")
        self.slots_at = (size + SLOT - 1) // SLOT * SLOT
        self.slots = self.slots_needed()
        size = self.slots_at + SLOT * <uint64_t>len(self.slots)
        if size == 0:
            raise DeviceError("the object has no code")
        self.size = (size + PAGE - 1) // PAGE * PAGE
        cdef void *base = mmap(
            NULL, self.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0
        )
        if base == MAP_FAILED:
            raise DeviceError(f"no memory for {self.size} bytes of code")
        self.base = <char *>base
        for i, offset in self.offsets.items():
            self.section(i, &section)
            if section.sh_type != SHT_NOBITS:
                memcpy(
                    self.base + <size_t>offset,
                    <const char *>self.data + section.sh_offset,
                    section.sh_size,
                )
        return 0

    cdef dict slots_needed(self):
        """Symbol -> number of its slot, for what is elsewhere or whose address is read."""
        cdef Elf64_Shdr section
        cdef Elf64_Rela entry
        cdef Elf64_Sym symbol
        cdef dict slots = {}
        cdef size_t k
        for i in range(len(self.sections)):
            self.section(i, &section)
            if section.sh_info not in self.offsets:
                continue
            if section.sh_type == SHT_REL:
                raise DeviceError("the object has relocations of another kind")
            if section.sh_type != SHT_RELA:
                continue
            for k in range(section.sh_size // sizeof(Elf64_Rela)):
                self.relocation(&section, k, &entry)
                self.symbol(entry.r_info >> 32, &symbol)
                if symbol.st_shndx == SHN_UNDEF or <uint32_t>entry.r_info in INDIRECT:
                    slots.setdefault(entry.r_info >> 32, len(slots))
        return slots

    cdef int relocation(self, Elf64_Shdr *section, size_t k, Elf64_Rela *into) except -1:
        memcpy(
            into,
            <const char *>self.data + section.sh_offset + k * sizeof(Elf64_Rela),
            sizeof(Elf64_Rela),
        )
        return 0

    cdef int fill_slots(self) except -1:
        """Writes the slots. DeviceError names all symbols that nobody has."""
        cdef Elf64_Sym symbol
        cdef size_t address
        cdef char *slot
        missing = []
        for number, place in self.slots.items():
            self.symbol(number, &symbol)
            if symbol.st_shndx == SHN_UNDEF:
                name = self.name_of(&symbol)
                address = library_function(name)
                if address == 0:
                    missing.append(name)
                    continue
            else:
                address = self.address_of(&symbol)
            slot = self.base + self.slots_at + SLOT * <size_t>place
            memcpy(slot, b"\xff\x25\x02\x00\x00\x00\xcc\xcc", 8)
            memcpy(slot + 8, &address, 8)
        if missing:
            names = ", ".join(sorted(missing))
            raise DeviceError(f"it needs functions that kernels do not have: {names}")
        return 0

    cdef size_t address_of(self, Elf64_Sym *symbol) except 0:
        """Where a symbol of the object's own stands."""
        cdef Elf64_Shdr section
        if symbol.st_shndx not in self.offsets:
            raise DeviceError(f"the object's symbol {self.name_of(symbol)!r} stands nowhere")
        self.section(symbol.st_shndx, &section)
        if symbol.st_value > section.sh_size:
            raise DeviceError(f"the object's symbol {self.name_of(symbol)!r} is outside")
        return <size_t>self.base + <size_t>self.offsets[symbol.st_shndx] + symbol.st_value

    cdef int relocate(self) except -1:
        """Writes the addresses that the object left open."""
        cdef Elf64_Shdr section
        cdef Elf64_Shdr target
        cdef Elf64_Rela entry
        cdef size_t k
        self.fill_slots()
        for i in range(len(self.sections)):
            self.section(i, &section)
            if section.sh_type != SHT_RELA or section.sh_info not in self.offsets:
                continue
            self.section(section.sh_info, &target)
            for k in range(section.sh_size // sizeof(Elf64_Rela)):
                self.relocation(&section, k, &entry)
                self.apply(
                    &entry, self.base + <size_t>self.offsets[section.sh_info], target.sh_size
                )
        return 0

    cdef int apply(self, Elf64_Rela *entry, char *section, uint64_t size) except -1:
        cdef Elf64_Sym symbol
        cdef uint32_t kind = <uint32_t>entry.r_info
        cdef uint64_t number = entry.r_info >> 32
        cdef uint64_t width = 8 if kind == R_X86_64_64 or kind == R_X86_64_PC64 else 4
        cdef int64_t value
        cdef int32_t short_value
        cdef char *place
        if entry.r_offset > size or width > size - entry.r_offset:
            raise DeviceError("the object's relocations are damaged")
        place = section + entry.r_offset
        self.symbol(number, &symbol)
        if kind in INDIRECT:
            value = <int64_t>(self.base + self.slots_at + SLOT * <size_t>self.slots[number] + 8)
        elif symbol.st_shndx == SHN_UNDEF:
            value = <int64_t>(self.base + self.slots_at + SLOT * <size_t>self.slots[number])
        else:
            value = <int64_t>self.address_of(&symbol)
        value += entry.r_addend
        if kind in RELATIVE:
            value -= <int64_t>place
        elif kind not in ABSOLUTE:
            raise DeviceError(f"the object has a relocation of unknown kind {kind}")
        if width == 8:
            memcpy(place, &value, 8)
            return 0
        if not INT32_MIN <= value <= INT32_MAX:
            raise DeviceError("the object's code is too far from what it uses")
        short_value = <int32_t>value
        memcpy(place, &short_value, 4)
        return 0

    cdef int read_functions(self) except -1:
        """The addresses of the symbols others may use."""
        cdef Elf64_Sym symbol
        cdef size_t k
        self.functions = {}
        for k in range(self.n_symbols):
            self.symbol(k, &symbol)
            if symbol.st_info >> 4 == STB_GLOBAL and symbol.st_shndx != SHN_UNDEF:
                self.functions[self.name_of(&symbol)] = self.address_of(&symbol)
        return 0

    def __reduce__(self):
        raise TypeError("a CodeImage is mapped into this process: send its bytes instead")


cdef frozenset INDIRECT = frozenset(
    {R_X86_64_GOTPCREL, R_X86_64_GOTPCRELX, R_X86_64_REX_GOTPCRELX}
)
cdef frozenset RELATIVE = INDIRECT | {R_X86_64_PC32, R_X86_64_PLT32, R_X86_64_PC64}
cdef frozenset ABSOLUTE = frozenset({R_X86_64_64, R_X86_64_32, R_X86_64_32S})
