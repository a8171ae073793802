"""`sharegroups console`: pages in a browser that show the cluster and mend what failed, with the rights of their user;
needs the extra `console`."""
