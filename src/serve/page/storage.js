// Browser storage: `local` is permanent, `session` lasts as long as the window. If the browser does
// not allow storage (private windows, blocked cookies), the data stays in memory.

class BrowserStorage {
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

  /** Returns false if the storage is full. */
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

export const local = new BrowserStorage(() => window.localStorage);
export const session = new BrowserStorage(() => window.sessionStorage);
