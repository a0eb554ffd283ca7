// What this browser keeps: `local` for good, `session` as long as the window. One that is told to keep nothing (private
// windows, blocked cookies) gets the same in memory.

class Kept {
  constructor(storageOf) {
    this.memory = new Map();
    try {
      this.storage = storageOf();
    } catch {
      this.storage = null;
    }
  }

  keys() {
    return this.storage ? Object.keys(this.storage) : [...this.memory.keys()];
  }

  get(key) {
    return (this.storage ? this.storage.getItem(key) : this.memory.get(key)) ?? null;
  }

  /** Whether there was room for it. */
  set(key, text) {
    try {
      if (this.storage) this.storage.setItem(key, text);
      else this.memory.set(key, text);
      return true;
    } catch {
      return false;
    }
  }

  remove(key) {
    if (this.storage) this.storage.removeItem(key);
    else this.memory.delete(key);
  }
}

export const local = new Kept(() => window.localStorage);
export const session = new Kept(() => window.sessionStorage);
