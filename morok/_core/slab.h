/* Memory for nodes, for node.pyx alone: slots of one size, one behind the other.

   A slot begins MK_LEAD bytes before a cache line, so that the object's header, which walks do not
   read, ends the line before and the structure behind it (types.pxd) begins one. Slots lie in slabs
   of many huge pages: walks jump about, and the processor's table of pages is small; and nodes that
   a loop builds lie at one distance from each other, which lets a walk guess where it goes next. A
   page on which no node lives goes back to the system, but for one that is kept, and so does a slab.
   All of it is called with the GIL held.

   The address sanitizer sees one allocation a node instead, or it would see none of its errors. */
#ifndef MOROK_SLAB_H
#define MOROK_SLAB_H
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

#define MK_LINE 64
#define MK_LEAD (MK_LINE - sizeof(PyObject))
#define MK_SLOT_BYTES ((size_t)192) /* of a node: a multiple of a line; checked against the class */

#ifdef __SANITIZE_ADDRESS__

static inline void *mk_slot_new(void) {
    void *p = NULL;
    if (posix_memalign(&p, MK_LINE, MK_LEAD + MK_SLOT_BYTES)) return NULL;
    return (char *)p + MK_LEAD;
}

static inline void mk_slot_free(void *p) { free((char *)p - MK_LEAD); }

static inline size_t mk_slot_memory(void) { return 0; }

#else
#include <sys/mman.h>

#define MK_PAGE_SHIFT 21
#define MK_PAGE_BYTES ((size_t)1 << MK_PAGE_SHIFT)
#define MK_PAGES 16
#define MK_SLAB_BYTES (MK_PAGES * MK_PAGE_BYTES)

typedef struct {
    void *free;     /* slots that begin here and were given back; each holds the address of the next */
    uint32_t fresh; /* where in the slab the first slot begins that was never given out */
    uint32_t live;  /* nodes that lie here, be it in part */
} mk_page;

typedef struct mk_slab {
    struct mk_slab *next, *prev; /* among those with room */
    uint32_t room;               /* bit p: page p may have a free slot */
    uint32_t live;               /* nodes */
    mk_page pages[MK_PAGES];
} mk_slab;

static mk_slab *mk_room = NULL;   /* slabs with room; the first one is used */
static mk_page *mk_spare = NULL;  /* a page without nodes that is kept, or NULL */
static size_t mk_pages_used = 0;  /* pages that were written to and not given back */

static inline void mk_room_enter(mk_slab *s) {
    s->prev = NULL;
    s->next = mk_room;
    if (mk_room != NULL) mk_room->prev = s;
    mk_room = s;
}

static inline void mk_room_leave(mk_slab *s) {
    if (s->prev != NULL) s->prev->next = s->next;
    else mk_room = s->next;
    if (s->next != NULL) s->next->prev = s->prev;
}

/* Where the first slot of a page begins: slots are counted from the slab's start, and the first few
   make way for the slab's own fields. */
static inline uint32_t mk_page_start(uint32_t page) {
    size_t first = (sizeof(mk_slab) + MK_SLOT_BYTES - 1) / MK_SLOT_BYTES;
    size_t slot = page ? (page * MK_PAGE_BYTES - MK_LEAD + MK_SLOT_BYTES - 1) / MK_SLOT_BYTES : first;
    return (uint32_t)(slot * MK_SLOT_BYTES + MK_LEAD);
}

static mk_slab *mk_slab_new(void) {
    char *p = (char *)mmap(NULL, 2 * MK_SLAB_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == (char *)MAP_FAILED) return NULL;
    char *start = (char *)(((uintptr_t)p + MK_SLAB_BYTES - 1) & ~(uintptr_t)(MK_SLAB_BYTES - 1));
    if (start != p) munmap(p, (size_t)(start - p));
    munmap(start + MK_SLAB_BYTES, (size_t)(p + MK_SLAB_BYTES - start));
#ifdef MADV_HUGEPAGE
    madvise(start, MK_SLAB_BYTES, MADV_HUGEPAGE);
#endif
    mk_slab *s = (mk_slab *)start; /* zeroed by the system */
    for (uint32_t i = 0; i < MK_PAGES; i++) s->pages[i].fresh = mk_page_start(i);
    s->room = ((uint32_t)1 << MK_PAGES) - 1;
    return s;
}

/* The page behind, if the slot at this place of the slab reaches into it; NULL if not. */
static inline mk_page *mk_second_page(mk_slab *s, uint32_t at) {
    uint32_t last = (uint32_t)((at + MK_SLOT_BYTES - 1) >> MK_PAGE_SHIFT);
    return last == at >> MK_PAGE_SHIFT ? NULL : &s->pages[last];
}

static inline void mk_page_hold(mk_page *page) {
    if (page->live++ == 0) {
        if (page == mk_spare) mk_spare = NULL;
        else mk_pages_used++;
    }
}

/* Give a page without nodes back to the system, unless it becomes the spare one. */
static void mk_page_empty(mk_slab *s, mk_page *page) {
    uint32_t i = (uint32_t)(page - s->pages);
    if (mk_spare == NULL || i == 0) {
        if (i != 0) mk_spare = page;
        else mk_pages_used--; /* it holds the slab's fields, and goes with the slab */
        return;
    }
    page->free = NULL;
    page->fresh = mk_page_start(i);
    madvise((char *)s + i * MK_PAGE_BYTES, MK_PAGE_BYTES, MADV_DONTNEED);
    mk_pages_used--;
}

static void mk_slab_empty(mk_slab *s) {
    if (s->next == NULL && s->prev == NULL) return; /* the only one with room */
    mk_room_leave(s);
    if (mk_spare >= s->pages && mk_spare < s->pages + MK_PAGES) {
        mk_spare = NULL;
        mk_pages_used--;
    }
    munmap(s, MK_SLAB_BYTES);
}

static inline void *mk_slot_new(void) {
    for (;;) {
        mk_slab *s = mk_room;
        if (s == NULL) {
            s = mk_slab_new();
            if (s == NULL) return NULL;
            mk_room_enter(s);
        }
        uint32_t i = (uint32_t)__builtin_ctz(s->room);
        mk_page *page = &s->pages[i];
        char *p = (char *)page->free;
        if (p != NULL) {
            page->free = *(void **)p;
        } else if (page->fresh < (i + 1) * MK_PAGE_BYTES
                   && page->fresh + MK_SLOT_BYTES <= MK_SLAB_BYTES) {
            p = (char *)s + page->fresh;
            page->fresh += (uint32_t)MK_SLOT_BYTES;
        } else {
            s->room &= s->room - 1;
            if (s->room == 0) mk_room_leave(s);
            continue;
        }
        s->live++;
        mk_page_hold(page);
        page = mk_second_page(s, (uint32_t)(p - (char *)s));
        if (page != NULL) mk_page_hold(page);
        return p;
    }
}

static inline void mk_slot_free(void *p) {
    mk_slab *s = (mk_slab *)((uintptr_t)p & ~(uintptr_t)(MK_SLAB_BYTES - 1));
    uint32_t at = (uint32_t)((char *)p - (char *)s), i = at >> MK_PAGE_SHIFT;
    mk_page *page = &s->pages[i], *second = mk_second_page(s, at);
    *(void **)p = page->free;
    page->free = p;
    if (s->room == 0) mk_room_enter(s);
    s->room |= (uint32_t)1 << i;
    s->live--;
    if (--page->live == 0) mk_page_empty(s, page);
    if (second != NULL && --second->live == 0) mk_page_empty(s, second);
    if (s->live == 0) mk_slab_empty(s);
}

/* Bytes of the pages in use. */
static inline size_t mk_slot_memory(void) { return mk_pages_used * MK_PAGE_BYTES; }

#endif
#endif
